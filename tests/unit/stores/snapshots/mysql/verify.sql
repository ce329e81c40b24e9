WITH kept AS 
(SELECT migrator_timeout.batch_id AS batch_id, count(*) AS `rows` 
FROM migrator_timeout GROUP BY migrator_timeout.batch_id)
 SELECT gap.id, gap.endpoint, gap.state, gap.size, gap.purged, gap.`rows`, count(*) OVER () AS total 
FROM (SELECT migrator_batch.id AS id, migrator_batch.endpoint AS endpoint, migrator_batch.state AS state, migrator_batch.size AS size, migrator_batch.purged AS purged, coalesce(kept.`rows`, :coalesce_1) AS `rows` 
FROM migrator_batch LEFT OUTER JOIN kept ON kept.batch_id = migrator_batch.id 
WHERE migrator_batch.size - migrator_batch.purged != coalesce(kept.`rows`, :coalesce_1) UNION ALL SELECT kept.batch_id AS batch_id, (SELECT min(migrator_timeout.endpoint) AS min_1 
FROM migrator_timeout 
WHERE migrator_timeout.batch_id = kept.batch_id) AS anon_1, 'doubtful', 0, 0, kept.`rows` AS `rows` 
FROM kept LEFT OUTER JOIN migrator_batch ON migrator_batch.id = kept.batch_id 
WHERE migrator_batch.id IS NULL) AS gap ORDER BY gap.id 
 LIMIT :param_1;

SELECT migrator_timeout.id, migrator_timeout.batch_id, migrator_timeout.row_index, migrator_timeout.endpoint, migrator_timeout.source, migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.due, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful') AS state, CASE WHEN (migrator_timeout.state = :state_1) THEN migrator_timeout.reason END AS reason, migrator_timeout.content_hash, CASE WHEN (migrator_timeout.state IS NULL AND migrator_batch.state = :state_2) THEN migrator_batch.handed_over_at END AS handed_over_at, `both`.total 
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id INNER JOIN (SELECT found.id AS id, count(*) OVER () AS total 
FROM (SELECT (SELECT known.id 
FROM migrator_timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = `Sales_Orders_TimeoutData`.`Id` AND known.endpoint IN (:endpoint_1_1) 
 LIMIT :param_1) AS id 
FROM `Sales_Orders_TimeoutData`) AS found 
WHERE found.id IS NOT NULL ORDER BY found.id 
 LIMIT :param_2) AS `both` ON migrator_timeout.id = `both`.id ORDER BY migrator_timeout.id;

SELECT migrator_timeout.id, migrator_timeout.store_id, migrator_timeout.batch_id, migrator_timeout.row_index, migrator_timeout.endpoint, migrator_timeout.due, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful') AS state, sha2(coalesce(migrator_timeout.body, :coalesce_1), :sha2_1) AS body_hash 
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id 
WHERE (migrator_timeout.batch_id, migrator_timeout.row_index) IN ((:param_1_1_1, :param_1_1_2), (:param_1_2_1, :param_1_2_2), (:param_1_3_1, :param_1_3_2));

SELECT migrator_timeout.id, migrator_timeout.content_hash = sha2(concat(CAST(coalesce(CAST(migrator_timeout.headers AS CHAR), :coalesce_1) AS BINARY), 0x00, coalesce(migrator_timeout.body, :coalesce_2)), :sha2_1) AS is_intact 
FROM migrator_timeout 
WHERE migrator_timeout.id IN (:id_1_1, :id_1_2);

SELECT `Sales_Orders_TimeoutData`.`Id` AS id, `Sales_Orders_TimeoutData`.`Time` 
FROM `Sales_Orders_TimeoutData` 
WHERE `Sales_Orders_TimeoutData`.`Id` > :Id_1 ORDER BY `Sales_Orders_TimeoutData`.`Id` 
 LIMIT :param_1;

