INSERT INTO dbo.[Sales_Orders_TimeoutData] ([Id], [Destination], [SagaId], [State], [Time], [Headers], [PersistenceVersion]) SELECT CAST(migrator.timeout.store_id AS UNIQUEIDENTIFIER) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UNIQUEIDENTIFIER) AS saga_id, migrator.timeout.body, CAST(migrator.timeout.due AS DATETIME) AS due, migrator.timeout.headers, migrator.timeout.persistence_version 
FROM migrator.timeout 
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.state IS NULL;

