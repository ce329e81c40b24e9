SELECT CASE WHEN (EXISTS (SELECT * 
FROM dbo.[Sales_Orders_TimeoutData] 
WHERE dbo.[Sales_Orders_TimeoutData].[Time] <= CAST(:Time_1 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Time] > CAST(:Time_2 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Time] >= CAST(:Time_3 AS DATETIME))) THEN 1 ELSE 0 END AS anon_1;

SELECT TOP 200 lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36))) AS id, dbo.[Sales_Orders_TimeoutData].[Time] AS due, coalesce(DATALENGTH(dbo.[Sales_Orders_TimeoutData].[State]), 0) AS body_bytes, coalesce(DATALENGTH(dbo.[Sales_Orders_TimeoutData].[Headers]), 0) AS headers_bytes 
FROM dbo.[Sales_Orders_TimeoutData] WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) 
WHERE dbo.[Sales_Orders_TimeoutData].[Time] <= CAST(:Time_1 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Time] > CAST(:Time_2 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Time] >= CAST(:Time_3 AS DATETIME) AND (SELECT TOP 1 1 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36)))) IS NULL ORDER BY dbo.[Sales_Orders_TimeoutData].[Time] OPTION (MAXDOP 1);

SELECT TOP 200 lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36))) AS id, dbo.[Sales_Orders_TimeoutData].[Time] AS due, coalesce(DATALENGTH(dbo.[Sales_Orders_TimeoutData].[State]), 0) AS body_bytes, coalesce(DATALENGTH(dbo.[Sales_Orders_TimeoutData].[Headers]), 0) AS headers_bytes 
FROM dbo.[Sales_Orders_TimeoutData] WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) 
WHERE dbo.[Sales_Orders_TimeoutData].[Time] <= CAST(:Time_1 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Time] >= CAST(:Time_2 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Time] >= CAST(:Time_3 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Id] IN (:Id_1_1) AND (SELECT TOP 1 1 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36)))) IS NULL ORDER BY dbo.[Sales_Orders_TimeoutData].[Time] OPTION (MAXDOP 1);

SELECT TOP 200 lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36))) AS id, dbo.[Sales_Orders_TimeoutData].[Time] AS due, coalesce(DATALENGTH(dbo.[Sales_Orders_TimeoutData].[State]), 0) AS body_bytes, coalesce(DATALENGTH(dbo.[Sales_Orders_TimeoutData].[Headers]), 0) AS headers_bytes 
FROM dbo.[Sales_Orders_TimeoutData] WITH (INDEX([Index_Time 100 %]), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) 
WHERE dbo.[Sales_Orders_TimeoutData].[Time] <= CAST(:Time_1 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Time] > CAST(:Time_2 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Time] >= CAST(:Time_3 AS DATETIME) AND (SELECT TOP 1 1 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36)))) IS NULL ORDER BY dbo.[Sales_Orders_TimeoutData].[Time] OPTION (MAXDOP 1);

SELECT TOP 200 lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36))) AS id, dbo.[Sales_Orders_TimeoutData].[Time] AS due, coalesce(DATALENGTH(dbo.[Sales_Orders_TimeoutData].[State]), 0) AS body_bytes, coalesce(DATALENGTH(dbo.[Sales_Orders_TimeoutData].[Headers]), 0) AS headers_bytes 
FROM dbo.[Sales_Orders_TimeoutData] WITH (INDEX([PK 100 %]), FORCESEEK, UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) 
WHERE dbo.[Sales_Orders_TimeoutData].[Time] <= CAST(:Time_1 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Time] >= CAST(:Time_2 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Time] >= CAST(:Time_3 AS DATETIME) AND dbo.[Sales_Orders_TimeoutData].[Id] IN (:Id_1_1) AND (SELECT TOP 1 1 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36)))) IS NULL ORDER BY dbo.[Sales_Orders_TimeoutData].[Time] OPTION (MAXDOP 1);

INSERT INTO migrator.timeout (source, endpoint, store_id, batch_id, destination, saga_id, due, body, headers, persistence_version, row_index, content_hash) SELECT :param_1 AS anon_1, :param_2 AS anon_2, lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36))) AS anon_3, :param_3 AS anon_4, dbo.[Sales_Orders_TimeoutData].[Destination], lower(CAST(dbo.[Sales_Orders_TimeoutData].[SagaId] AS CHAR(36))) AS anon_5, dbo.[Sales_Orders_TimeoutData].[Time], dbo.[Sales_Orders_TimeoutData].[State], dbo.[Sales_Orders_TimeoutData].[Headers], dbo.[Sales_Orders_TimeoutData].[PersistenceVersion], picked.row_index, picked.content_hash 
FROM (VALUES (:param_4, :param_5, :param_6)) AS picked (id, row_index, content_hash) JOIN dbo.[Sales_Orders_TimeoutData] WITH (INDEX([PK 100 %]), FORCESEEK, ROWLOCK) ON dbo.[Sales_Orders_TimeoutData].[Id] = CAST(picked.id AS UNIQUEIDENTIFIER);

SELECT lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36))) AS id, dbo.[Sales_Orders_TimeoutData].[Headers] AS headers, dbo.[Sales_Orders_TimeoutData].[State] AS body 
FROM dbo.[Sales_Orders_TimeoutData] WITH (INDEX([PK 100 %]), FORCESEEK, UPDLOCK, ROWLOCK) 
WHERE dbo.[Sales_Orders_TimeoutData].[Id] IN (:Id_1_1);

DELETE FROM dbo.[Sales_Orders_TimeoutData] WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE dbo.[Sales_Orders_TimeoutData].[Id] IN (:Id_1_1);

SELECT lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36))) AS anon_1 
FROM dbo.[Sales_Orders_TimeoutData] WITH (UPDLOCK, HOLDLOCK, ROWLOCK) 
WHERE dbo.[Sales_Orders_TimeoutData].[Id] IN (:Id_1_1);

SELECT lower(CAST(dbo.[Sales_Orders_TimeoutData].[Id] AS CHAR(36))) AS anon_1 
FROM dbo.[Sales_Orders_TimeoutData] WITH (INDEX([PK 100 %]), FORCESEEK, UPDLOCK, HOLDLOCK, ROWLOCK) 
WHERE dbo.[Sales_Orders_TimeoutData].[Id] IN (:Id_1_1);

