SELECT TOP 200 migrator.timeout.id, migrator.timeout.batch_id, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes 
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK) JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id 
WHERE migrator.batch.state = :state_1 AND migrator.timeout.state = :state_2 ORDER BY migrator.timeout.due, migrator.timeout.id;

