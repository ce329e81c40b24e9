SELECT count(*) AS count_1 
FROM (SELECT `TimeoutEntity`.`Endpoint` AS owner 
FROM `TimeoutEntity` 
WHERE 1 = 0 UNION ALL SELECT :param_1 AS anon_1) AS probe 
WHERE probe.owner = :owner_1;

SELECT min(`TimeoutEntity`.`Endpoint`) AS min_1 
FROM `TimeoutEntity` 
WHERE `TimeoutEntity`.`Endpoint` > :Endpoint_1;

SELECT `TimeoutEntity`.`Id`, `TimeoutEntity`.`Time`, coalesce(octet_length(`TimeoutEntity`.`State`), 0) AS body_bytes, coalesce(octet_length(`TimeoutEntity`.`Headers`), 0) AS headers_bytes 
FROM `TimeoutEntity` FORCE INDEX (`Index_Time`) 
WHERE `TimeoutEntity`.`Endpoint` = :Endpoint_1 AND `TimeoutEntity`.`Time` <= :Time_1 AND `TimeoutEntity`.`Time` > :Time_2 AND `TimeoutEntity`.`Time` >= :Time_3 AND (`TimeoutEntity`.`Destination` IS NULL OR (CAST(`TimeoutEntity`.`Destination` AS CHAR) COLLATE utf8mb4_bin NOT IN (:param_1_1))) AND (SELECT 1 
FROM migrator_timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(concat(substr(hex(`TimeoutEntity`.`Id`), 7, 2), substr(hex(`TimeoutEntity`.`Id`), 5, 2), substr(hex(`TimeoutEntity`.`Id`), 3, 2), substr(hex(`TimeoutEntity`.`Id`), 1, 2), '-', substr(hex(`TimeoutEntity`.`Id`), 11, 2), substr(hex(`TimeoutEntity`.`Id`), 9, 2), '-', substr(hex(`TimeoutEntity`.`Id`), 15, 2), substr(hex(`TimeoutEntity`.`Id`), 13, 2), '-', substr(hex(`TimeoutEntity`.`Id`), 17, 4), '-', substr(hex(`TimeoutEntity`.`Id`), 21, 12))) 
 LIMIT :param_2) IS NULL ORDER BY `TimeoutEntity`.`Time`, `TimeoutEntity`.`Id` 
 LIMIT :param_3 FOR UPDATE SKIP LOCKED;

INSERT INTO migrator_timeout (source, endpoint, store_id, batch_id, destination, saga_id, due, body, headers, persistence_version, store_extra, row_index, content_hash) SELECT STRAIGHT_JOIN :param_1 AS anon_1, :param_2 AS anon_2, lower(concat(substr(hex(`TimeoutEntity`.`Id`), 7, 2), substr(hex(`TimeoutEntity`.`Id`), 5, 2), substr(hex(`TimeoutEntity`.`Id`), 3, 2), substr(hex(`TimeoutEntity`.`Id`), 1, 2), '-', substr(hex(`TimeoutEntity`.`Id`), 11, 2), substr(hex(`TimeoutEntity`.`Id`), 9, 2), '-', substr(hex(`TimeoutEntity`.`Id`), 15, 2), substr(hex(`TimeoutEntity`.`Id`), 13, 2), '-', substr(hex(`TimeoutEntity`.`Id`), 17, 4), '-', substr(hex(`TimeoutEntity`.`Id`), 21, 12))) AS anon_3, :param_3 AS anon_4, `TimeoutEntity`.`Destination`, lower(concat(substr(hex(`TimeoutEntity`.`SagaId`), 7, 2), substr(hex(`TimeoutEntity`.`SagaId`), 5, 2), substr(hex(`TimeoutEntity`.`SagaId`), 3, 2), substr(hex(`TimeoutEntity`.`SagaId`), 1, 2), '-', substr(hex(`TimeoutEntity`.`SagaId`), 11, 2), substr(hex(`TimeoutEntity`.`SagaId`), 9, 2), '-', substr(hex(`TimeoutEntity`.`SagaId`), 15, 2), substr(hex(`TimeoutEntity`.`SagaId`), 13, 2), '-', substr(hex(`TimeoutEntity`.`SagaId`), 17, 4), '-', substr(hex(`TimeoutEntity`.`SagaId`), 21, 12))) AS anon_5, `TimeoutEntity`.`Time`, `TimeoutEntity`.`State`, `TimeoutEntity`.`Headers`, NULL AS anon_6, `TimeoutEntity`.`Endpoint`, picked.row_index - :row_index_1 AS anon_7, sha2(concat(CAST(coalesce(CAST(`TimeoutEntity`.`Headers` AS CHAR), :coalesce_1) AS BINARY), 0x00, coalesce(`TimeoutEntity`.`State`, :coalesce_2)), :sha2_2) AS sha2_1 
FROM json_table(:ids, '$[*]' COLUMNS (row_index FOR ORDINALITY, id VARCHAR(500) CHARACTER SET ascii PATH '$')) AS picked INNER JOIN `TimeoutEntity` ON `TimeoutEntity`.`Id` = unhex(picked.id);

INSERT INTO `TimeoutEntity` (`Id`, `SagaId`, `State`, `Time`) SELECT unhex(concat(substr(migrator_timeout.store_id, 7, 2), substr(migrator_timeout.store_id, 5, 2), substr(migrator_timeout.store_id, 3, 2), substr(migrator_timeout.store_id, 1, 2), substr(migrator_timeout.store_id, 12, 2), substr(migrator_timeout.store_id, 10, 2), substr(migrator_timeout.store_id, 17, 2), substr(migrator_timeout.store_id, 15, 2), substr(migrator_timeout.store_id, 20, 4), substr(migrator_timeout.store_id, 25, 12))) AS anon_1, unhex(concat(substr(migrator_timeout.saga_id, 7, 2), substr(migrator_timeout.saga_id, 5, 2), substr(migrator_timeout.saga_id, 3, 2), substr(migrator_timeout.saga_id, 1, 2), substr(migrator_timeout.saga_id, 12, 2), substr(migrator_timeout.saga_id, 10, 2), substr(migrator_timeout.saga_id, 17, 2), substr(migrator_timeout.saga_id, 15, 2), substr(migrator_timeout.saga_id, 20, 4), substr(migrator_timeout.saga_id, 25, 12))) AS anon_2, migrator_timeout.body, migrator_timeout.due 
FROM migrator_timeout 
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.state IS NULL;

UPDATE migrator_timeout SET state=:state WHERE migrator_timeout.batch_id = :batch_id_1;

INSERT INTO `TimeoutEntity` (`Id`, `Destination`, `SagaId`, `State`, `Time`, `Headers`) VALUES (:Id, :Destination, :SagaId, :State, :Time, :Headers);

DELETE FROM `TimeoutEntity` WHERE `TimeoutEntity`.`Id` IN (:Id_1_1) AND (SELECT 1 
FROM migrator_timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(concat(substr(hex(`TimeoutEntity`.`Id`), 7, 2), substr(hex(`TimeoutEntity`.`Id`), 5, 2), substr(hex(`TimeoutEntity`.`Id`), 3, 2), substr(hex(`TimeoutEntity`.`Id`), 1, 2), '-', substr(hex(`TimeoutEntity`.`Id`), 11, 2), substr(hex(`TimeoutEntity`.`Id`), 9, 2), '-', substr(hex(`TimeoutEntity`.`Id`), 15, 2), substr(hex(`TimeoutEntity`.`Id`), 13, 2), '-', substr(hex(`TimeoutEntity`.`Id`), 17, 4), '-', substr(hex(`TimeoutEntity`.`Id`), 21, 12))) 
 LIMIT :param_1) IS NOT NULL;

DELETE FROM `TimeoutEntity` WHERE `TimeoutEntity`.`SagaId` IN (:SagaId_1_1);

