INSERT INTO `Sales_Orders_TimeoutData` (`Id`, `SagaId`, `State`, `Time`) SELECT migrator_timeout.store_id, migrator_timeout.saga_id, migrator_timeout.body, migrator_timeout.due 
FROM migrator_timeout 
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.state IS NULL;

UPDATE migrator_timeout SET state=:state WHERE migrator_timeout.batch_id = :batch_id_1;

