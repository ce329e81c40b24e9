SELECT `Sales_Orders_TimeoutData`.`Id`, `Sales_Orders_TimeoutData`.`Time`, coalesce(octet_length(`Sales_Orders_TimeoutData`.`State`), 0) AS body_bytes, coalesce(octet_length(`Sales_Orders_TimeoutData`.`Headers`), 0) AS headers_bytes 
FROM `Sales_Orders_TimeoutData` FORCE INDEX (`Index_Time`) 
WHERE `Sales_Orders_TimeoutData`.`Time` <= :Time_1 AND `Sales_Orders_TimeoutData`.`Time` > :Time_2 AND `Sales_Orders_TimeoutData`.`Time` >= :Time_3 AND (`Sales_Orders_TimeoutData`.`Destination` IS NULL OR (CAST(`Sales_Orders_TimeoutData`.`Destination` AS CHAR) COLLATE utf8mb4_bin NOT IN (:param_1_1))) AND (SELECT 1 
FROM migrator_timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = `Sales_Orders_TimeoutData`.`Id` 
 LIMIT :param_2) IS NULL ORDER BY `Sales_Orders_TimeoutData`.`Time`, `Sales_Orders_TimeoutData`.`Id` 
 LIMIT :param_3 FOR UPDATE SKIP LOCKED;

INSERT INTO migrator_timeout (source, endpoint, store_id, batch_id, destination, saga_id, due, body, headers, persistence_version, row_index, content_hash) SELECT STRAIGHT_JOIN :param_1 AS anon_1, :param_2 AS anon_2, `Sales_Orders_TimeoutData`.`Id`, :param_3 AS anon_3, `Sales_Orders_TimeoutData`.`Destination`, `Sales_Orders_TimeoutData`.`SagaId`, `Sales_Orders_TimeoutData`.`Time`, `Sales_Orders_TimeoutData`.`State`, `Sales_Orders_TimeoutData`.`Headers`, `Sales_Orders_TimeoutData`.`PersistenceVersion`, picked.row_index - :row_index_1 AS anon_4, sha2(concat(CAST(coalesce(CAST(`Sales_Orders_TimeoutData`.`Headers` AS CHAR), :coalesce_1) AS BINARY), 0x00, coalesce(`Sales_Orders_TimeoutData`.`State`, :coalesce_2)), :sha2_2) AS sha2_1 
FROM json_table(:ids, '$[*]' COLUMNS (row_index FOR ORDINALITY, id VARCHAR(500) CHARACTER SET ascii PATH '$')) AS picked INNER JOIN `Sales_Orders_TimeoutData` ON `Sales_Orders_TimeoutData`.`Id` = picked.id;

