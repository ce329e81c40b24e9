SELECT migrator_timeout.id, migrator_timeout.batch_id, coalesce(octet_length(migrator_timeout.body), 0) AS body_bytes 
FROM migrator_timeout INNER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id 
WHERE migrator_batch.state = :state_1 AND migrator_timeout.state = :state_2 ORDER BY migrator_timeout.due, migrator_timeout.id 
 LIMIT :param_1 FOR UPDATE;

