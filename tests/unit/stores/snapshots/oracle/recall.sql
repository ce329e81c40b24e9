SELECT migrator_timeout.id, migrator_timeout.batch_id, migrator_timeout.row_index, migrator_timeout.source, migrator_timeout.store_id, migrator_timeout.due, coalesce(migrator_timeout.state, migrator_batch.state) AS state, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes, migrator_timeout.going_back, 1 AS is_meant 
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id 
WHERE (migrator_timeout.batch_id, migrator_timeout.row_index) IN ((:param_1_1_1, :param_1_1_2), (:param_1_2_1, :param_1_2_2)) FOR UPDATE OF migrator_timeout.id WAIT 5;

