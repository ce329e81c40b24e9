INSERT INTO dbo.[Sales_Orders_TimeoutData] ([Id], [Destination], [SagaId], [State], [Time], [Headers], [PersistenceVersion]) VALUES (:Id, :Destination, :SagaId, :State, CAST(:Time AS DATETIME), :Headers, :PersistenceVersion);

DELETE FROM dbo.[Sales_Orders_TimeoutData] WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE dbo.[Sales_Orders_TimeoutData].[Id] IN (:Id_1_1) AND (SELECT TOP 1 1 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36)))) IS NOT NULL;

DELETE FROM dbo.[Sales_Orders_TimeoutData] WITH (ROWLOCK) WHERE dbo.[Sales_Orders_TimeoutData].[SagaId] IN (:SagaId_1_1);

