SELECT migrator_timeout.id, migrator_timeout.batch_id, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes 
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id 
WHERE migrator_batch.state = :state_1 AND migrator_timeout.state = :state_2 AND migrator_timeout.id IN (SELECT migrator_timeout.id 
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id 
WHERE migrator_batch.state = :state_1 AND migrator_timeout.state = :state_2 ORDER BY migrator_timeout.due, migrator_timeout.id
 FETCH FIRST 200 ROWS ONLY) ORDER BY migrator_timeout.due, migrator_timeout.id FOR UPDATE OF migrator_timeout.id WAIT 5;

