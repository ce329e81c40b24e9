INSERT INTO dbo.[Sales_Orders_TimeoutData] ([Id], [SagaId], [State], [Time]) SELECT CAST(migrator.timeout.store_id AS UNIQUEIDENTIFIER) AS store_id, CAST(migrator.timeout.saga_id AS UNIQUEIDENTIFIER) AS saga_id, migrator.timeout.body, CAST(migrator.timeout.due AS DATETIME) AS due 
FROM migrator.timeout 
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.state IS NULL;

