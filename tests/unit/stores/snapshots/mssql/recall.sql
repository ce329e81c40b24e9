SELECT migrator.timeout.id, migrator.timeout.batch_id, migrator.timeout.row_index, migrator.timeout.source, migrator.timeout.store_id, migrator.timeout.due, coalesce(migrator.timeout.state, migrator.batch.state) AS state, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes, migrator.timeout.going_back, 1 AS is_meant 
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK) JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id 
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.row_index IN (:row_index_1_1, :row_index_1_2);

