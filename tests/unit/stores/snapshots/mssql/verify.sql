SELECT migrator.timeout.id, migrator.timeout.batch_id AS batch, migrator.timeout.row_index, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id AS timeout_id, migrator.timeout.destination, migrator.timeout.due AS due_at, coalesce(migrator.timeout.state, migrator.batch.state, 'doubtful') AS state, CASE WHEN (migrator.timeout.state = :state_1) THEN migrator.timeout.reason END AS reason, migrator.timeout.content_hash, migrator.batch.claimed_at, CASE WHEN (migrator.timeout.state IS NULL AND migrator.batch.state = :state_2) THEN migrator.batch.handed_over_at END AS handed_over_at, migrator.timeout.body AS body_hash 
FROM migrator.timeout LEFT OUTER JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id 
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.row_index IN (:row_index_1_1, :row_index_1_2) OR migrator.timeout.batch_id = :batch_id_2 AND migrator.timeout.row_index IN (:row_index_2_1);

SELECT TOP 1000 migrator.timeout.id, migrator.timeout.batch_id AS batch, migrator.timeout.row_index, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id AS timeout_id, migrator.timeout.destination, migrator.timeout.due AS due_at, coalesce(migrator.timeout.state, migrator.batch.state, 'doubtful') AS state, CASE WHEN (migrator.timeout.state = :state_1) THEN migrator.timeout.reason END AS reason, migrator.timeout.content_hash, migrator.batch.claimed_at, CASE WHEN (migrator.timeout.state IS NULL AND migrator.batch.state = :state_2) THEN migrator.batch.handed_over_at END AS handed_over_at, migrator.timeout.body AS body_hash, migrator.timeout.headers, migrator.timeout.body 
FROM migrator.timeout LEFT OUTER JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id 
WHERE migrator.timeout.id > :id_1 ORDER BY migrator.timeout.id;

SELECT migrator.timeout.id, migrator.timeout.content_hash, migrator.timeout.headers, migrator.timeout.body 
FROM migrator.timeout 
WHERE migrator.timeout.id IN (:id_1_1, :id_1_2);

