SELECT migrator_timeout.id, migrator_timeout.batch_id AS batch, migrator_timeout.row_index, migrator_timeout.endpoint, migrator_timeout.source, migrator_timeout.store_id AS timeout_id, migrator_timeout.destination, migrator_timeout.due AS due_at, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful') AS state, CASE WHEN (migrator_timeout.state = :state_1) THEN migrator_timeout.reason END AS reason, migrator_timeout.content_hash, migrator_batch.claimed_at, CASE WHEN (migrator_timeout.state IS NULL AND migrator_batch.state = :state_2) THEN migrator_batch.handed_over_at END AS handed_over_at, migrator_timeout.body AS body_hash 
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id 
WHERE (migrator_timeout.batch_id, migrator_timeout.row_index) IN ((:param_1_1_1, :param_1_1_2), (:param_1_2_1, :param_1_2_2), (:param_1_3_1, :param_1_3_2));

SELECT migrator_timeout.id, migrator_timeout.batch_id AS batch, migrator_timeout.row_index, migrator_timeout.endpoint, migrator_timeout.source, migrator_timeout.store_id AS timeout_id, migrator_timeout.destination, migrator_timeout.due AS due_at, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful') AS state, CASE WHEN (migrator_timeout.state = :state_1) THEN migrator_timeout.reason END AS reason, migrator_timeout.content_hash, migrator_batch.claimed_at, CASE WHEN (migrator_timeout.state IS NULL AND migrator_batch.state = :state_2) THEN migrator_batch.handed_over_at END AS handed_over_at, migrator_timeout.body AS body_hash, migrator_timeout.headers, migrator_timeout.body 
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id 
WHERE migrator_timeout.id > :id_1 ORDER BY migrator_timeout.id
 FETCH FIRST 1000 ROWS ONLY;

SELECT migrator_timeout.id, migrator_timeout.content_hash, migrator_timeout.headers, migrator_timeout.body 
FROM migrator_timeout 
WHERE migrator_timeout.id IN (:id_1_1, :id_1_2);

