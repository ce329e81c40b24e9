SELECT count(*) AS count_1 
FROM (SELECT dbo.[TimeoutEntity].[Endpoint] AS owner 
FROM dbo.[TimeoutEntity] 
WHERE 1 = 0 UNION ALL SELECT :param_1 AS anon_1) AS probe 
WHERE probe.owner = :owner_1;

SELECT CASE WHEN (EXISTS (SELECT * 
FROM dbo.[TimeoutEntity] 
WHERE dbo.[TimeoutEntity].[Endpoint] = :Endpoint_1 AND dbo.[TimeoutEntity].[Time] <= CAST(:Time_1 AS DATETIME) AND dbo.[TimeoutEntity].[Time] > CAST(:Time_2 AS DATETIME) AND dbo.[TimeoutEntity].[Time] >= CAST(:Time_3 AS DATETIME))) THEN 1 ELSE 0 END AS anon_1;

SELECT TOP 200 lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36))) AS id, dbo.[TimeoutEntity].[Time] AS due, coalesce(DATALENGTH(dbo.[TimeoutEntity].[State]), 0) AS body_bytes, coalesce(DATALENGTH(dbo.[TimeoutEntity].[Headers]), 0) AS headers_bytes 
FROM dbo.[TimeoutEntity] WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) 
WHERE dbo.[TimeoutEntity].[Endpoint] = :Endpoint_1 AND dbo.[TimeoutEntity].[Time] <= CAST(:Time_1 AS DATETIME) AND dbo.[TimeoutEntity].[Time] > CAST(:Time_2 AS DATETIME) AND dbo.[TimeoutEntity].[Time] >= CAST(:Time_3 AS DATETIME) AND (SELECT TOP 1 1 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36)))) IS NULL ORDER BY dbo.[TimeoutEntity].[Time] OPTION (MAXDOP 1);

SELECT TOP 200 lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36))) AS id, dbo.[TimeoutEntity].[Time] AS due, coalesce(DATALENGTH(dbo.[TimeoutEntity].[State]), 0) AS body_bytes, coalesce(DATALENGTH(dbo.[TimeoutEntity].[Headers]), 0) AS headers_bytes 
FROM dbo.[TimeoutEntity] WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) 
WHERE dbo.[TimeoutEntity].[Endpoint] = :Endpoint_1 AND dbo.[TimeoutEntity].[Time] <= CAST(:Time_1 AS DATETIME) AND dbo.[TimeoutEntity].[Time] >= CAST(:Time_2 AS DATETIME) AND dbo.[TimeoutEntity].[Time] >= CAST(:Time_3 AS DATETIME) AND dbo.[TimeoutEntity].[Id] IN (:Id_1_1) AND (SELECT TOP 1 1 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36)))) IS NULL ORDER BY dbo.[TimeoutEntity].[Time] OPTION (MAXDOP 1);

SELECT TOP 200 lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36))) AS id, dbo.[TimeoutEntity].[Time] AS due, coalesce(DATALENGTH(dbo.[TimeoutEntity].[State]), 0) AS body_bytes, coalesce(DATALENGTH(dbo.[TimeoutEntity].[Headers]), 0) AS headers_bytes 
FROM dbo.[TimeoutEntity] WITH (INDEX([Index_Time 100 %]), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) 
WHERE dbo.[TimeoutEntity].[Endpoint] = :Endpoint_1 AND dbo.[TimeoutEntity].[Time] <= CAST(:Time_1 AS DATETIME) AND dbo.[TimeoutEntity].[Time] > CAST(:Time_2 AS DATETIME) AND dbo.[TimeoutEntity].[Time] >= CAST(:Time_3 AS DATETIME) AND (SELECT TOP 1 1 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36)))) IS NULL ORDER BY dbo.[TimeoutEntity].[Time] OPTION (MAXDOP 1);

SELECT TOP 200 lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36))) AS id, dbo.[TimeoutEntity].[Time] AS due, coalesce(DATALENGTH(dbo.[TimeoutEntity].[State]), 0) AS body_bytes, coalesce(DATALENGTH(dbo.[TimeoutEntity].[Headers]), 0) AS headers_bytes 
FROM dbo.[TimeoutEntity] WITH (INDEX([PK 100 %]), FORCESEEK, UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) 
WHERE dbo.[TimeoutEntity].[Endpoint] = :Endpoint_1 AND dbo.[TimeoutEntity].[Time] <= CAST(:Time_1 AS DATETIME) AND dbo.[TimeoutEntity].[Time] >= CAST(:Time_2 AS DATETIME) AND dbo.[TimeoutEntity].[Time] >= CAST(:Time_3 AS DATETIME) AND dbo.[TimeoutEntity].[Id] IN (:Id_1_1) AND (SELECT TOP 1 1 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36)))) IS NULL ORDER BY dbo.[TimeoutEntity].[Time] OPTION (MAXDOP 1);

INSERT INTO migrator.timeout (source, endpoint, store_id, batch_id, destination, saga_id, due, body, headers, persistence_version, store_extra, row_index, content_hash) SELECT :param_1 AS anon_1, :param_2 AS anon_2, lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36))) AS anon_3, :param_3 AS anon_4, dbo.[TimeoutEntity].[Destination], lower(CAST(dbo.[TimeoutEntity].[SagaId] AS CHAR(36))) AS anon_5, dbo.[TimeoutEntity].[Time], dbo.[TimeoutEntity].[State], dbo.[TimeoutEntity].[Headers], NULL AS anon_6, dbo.[TimeoutEntity].[Endpoint], picked.row_index, picked.content_hash 
FROM (VALUES (:param_4, :param_5, :param_6)) AS picked (id, row_index, content_hash) JOIN dbo.[TimeoutEntity] WITH (INDEX([PK 100 %]), FORCESEEK, ROWLOCK) ON dbo.[TimeoutEntity].[Id] = CAST(picked.id AS UNIQUEIDENTIFIER);

SELECT lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36))) AS id, dbo.[TimeoutEntity].[Headers] AS headers, dbo.[TimeoutEntity].[State] AS body 
FROM dbo.[TimeoutEntity] WITH (INDEX([PK 100 %]), FORCESEEK, UPDLOCK, ROWLOCK) 
WHERE dbo.[TimeoutEntity].[Id] IN (:Id_1_1);

DELETE FROM dbo.[TimeoutEntity] WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE dbo.[TimeoutEntity].[Id] IN (:Id_1_1);

SELECT lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36))) AS anon_1 
FROM dbo.[TimeoutEntity] WITH (UPDLOCK, HOLDLOCK, ROWLOCK) 
WHERE dbo.[TimeoutEntity].[Id] IN (:Id_1_1);

SELECT lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36))) AS anon_1 
FROM dbo.[TimeoutEntity] WITH (INDEX([PK 100 %]), FORCESEEK, UPDLOCK, HOLDLOCK, ROWLOCK) 
WHERE dbo.[TimeoutEntity].[Id] IN (:Id_1_1);

INSERT INTO dbo.[TimeoutEntity] ([Id], [Destination], [SagaId], [State], [Time], [Headers], [Endpoint]) SELECT CAST(migrator.timeout.store_id AS UNIQUEIDENTIFIER) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UNIQUEIDENTIFIER) AS saga_id, migrator.timeout.body, CAST(migrator.timeout.due AS DATETIME) AS due, migrator.timeout.headers, coalesce(CAST(migrator.timeout.store_extra AS NVARCHAR(440)), :param_1) AS coalesce_1 
FROM migrator.timeout 
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.state IS NULL;

INSERT INTO dbo.[TimeoutEntity] ([Id], [Destination], [SagaId], [State], [Endpoint], [Time], [Headers]) VALUES (:Id, :Destination, :SagaId, :State, :Endpoint, CAST(:Time AS DATETIME), :Headers);

DELETE FROM dbo.[TimeoutEntity] WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE dbo.[TimeoutEntity].[Id] IN (:Id_1_1) AND (SELECT TOP 1 1 
FROM migrator.timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = lower(CAST(dbo.[TimeoutEntity].[Id] AS CHAR(36)))) IS NOT NULL;

DELETE FROM dbo.[TimeoutEntity] WITH (ROWLOCK) WHERE dbo.[TimeoutEntity].[SagaId] IN (:SagaId_1_1);

