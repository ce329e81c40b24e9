WITH kept AS 
(SELECT migrator.timeout.batch_id AS batch_id, count(*) AS rows 
FROM migrator.timeout GROUP BY migrator.timeout.batch_id)
 SELECT TOP 5 gap.id, gap.endpoint, gap.state, gap.size, gap.purged, gap.rows, count(*) OVER () AS total 
FROM (SELECT migrator.batch.id AS id, migrator.batch.endpoint AS endpoint, migrator.batch.state AS state, migrator.batch.size AS size, migrator.batch.purged AS purged, coalesce(kept.rows, :coalesce_1) AS rows 
FROM migrator.batch LEFT OUTER JOIN kept ON kept.batch_id = migrator.batch.id 
WHERE migrator.batch.size - migrator.batch.purged != coalesce(kept.rows, :coalesce_1) UNION ALL SELECT kept.batch_id AS batch_id, (SELECT min(migrator.timeout.endpoint) AS min_1 
FROM migrator.timeout 
WHERE migrator.timeout.batch_id = kept.batch_id) AS anon_1, 'doubtful', 0, 0, kept.rows AS rows 
FROM kept LEFT OUTER JOIN migrator.batch ON migrator.batch.id = kept.batch_id 
WHERE migrator.batch.id IS NULL) AS gap ORDER BY gap.id;

SELECT migrator.timeout.id, migrator.timeout.batch_id, migrator.timeout.row_index, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id, migrator.timeout.destination, migrator.timeout.due, coalesce(migrator.timeout.state, migrator.batch.state, 'doubtful') AS state, CASE WHEN (migrator.timeout.state = :state_1) THEN migrator.timeout.reason END AS reason, migrator.timeout.content_hash, CASE WHEN (migrator.timeout.state IS NULL AND migrator.batch.state = :state_2) THEN migrator.batch.handed_over_at END AS handed_over_at, both.total 
FROM migrator.timeout LEFT OUTER JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id JOIN (SELECT TOP 10 found.id AS id, count(*) OVER () AS total 
FROM (SELECT (SELECT TOP 1 known.id 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36))) AND known.endpoint IN (:endpoint_1_1)) AS id 
FROM dbo.[Sales_Orders_TimeoutData]) AS found 
WHERE found.id IS NOT NULL ORDER BY found.id) AS both ON migrator.timeout.id = both.id ORDER BY migrator.timeout.id;

SELECT migrator.timeout.id, migrator.timeout.store_id, migrator.timeout.batch_id, migrator.timeout.row_index, migrator.timeout.endpoint, migrator.timeout.due, coalesce(migrator.timeout.state, migrator.batch.state, 'doubtful') AS state, migrator.timeout.body AS body_hash 
FROM migrator.timeout LEFT OUTER JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id 
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.row_index IN (:row_index_1_1, :row_index_1_2) OR migrator.timeout.batch_id = :batch_id_2 AND migrator.timeout.row_index IN (:row_index_2_1);

SELECT migrator.timeout.id, migrator.timeout.content_hash, migrator.timeout.headers, migrator.timeout.body 
FROM migrator.timeout 
WHERE migrator.timeout.id IN (:id_1_1, :id_1_2);

SELECT TOP 200 lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36))) AS id, dbo.[Sales_Orders_TimeoutData].[Time] 
FROM dbo.[Sales_Orders_TimeoutData] 
WHERE dbo.[Sales_Orders_TimeoutData].[Id] > :Id_1 ORDER BY dbo.[Sales_Orders_TimeoutData].[Id];

