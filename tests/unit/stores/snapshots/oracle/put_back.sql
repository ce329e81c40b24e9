INSERT INTO sales_orders_to (id, sagaid, state, expiretime) SELECT migrator_timeout.store_id, migrator_timeout.saga_id, migrator_timeout.body, CAST(migrator_timeout.due AS DATE) AS due 
FROM migrator_timeout 
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.state IS NULL;

