INSERT INTO sales_orders_to (id, destination, sagaid, state, expiretime, headers, persistenceversion) SELECT migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.body, CAST(migrator_timeout.due AS DATE) AS due, migrator_timeout.headers, migrator_timeout.persistence_version 
FROM migrator_timeout 
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.state IS NULL;

