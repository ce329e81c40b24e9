DELETE FROM [public].timeoutentity WITH (ROWLOCK) WHERE [public].timeoutentity.sagaid IN (:SagaId_1);

DELETE FROM [public].timeoutentity WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE [public].timeoutentity.id IN (:Id_1) AND (SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL;

DELETE FROM migrator.batch WHERE migrator.batch.id = :id_1;

DELETE FROM migrator.batch WHERE migrator.batch.id IN (:id_1);

DELETE FROM migrator.held_destination WHERE migrator.held_destination.source = :source_1 AND migrator.held_destination.destination IN (:destination_1);

DELETE FROM migrator.timeout WHERE migrator.timeout.id IN (:id_1);

DELETE FROM migrator.timeout WITH (ROWLOCK) OUTPUT deleted.batch_id WHERE migrator.timeout.batch_id IN (:batch_id_1) AND migrator.timeout.state IS NULL;

DELETE FROM migrator.timeout WITH (ROWLOCK) WHERE migrator.timeout.id IN (:id_1);

DELETE FROM timeouts WITH (ROWLOCK) WHERE timeouts.[SagaId] IN (:SagaId_1);

DELETE FROM timeouts WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE timeouts.[Id] IN (:Id_1) AND (SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL;

INSERT INTO [public].[my.own timeouts] ([Id], [Destination], [SagaId], [State], [Time], [Headers], [PersistenceVersion]) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, migrator.timeout.persistence_version
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1);

INSERT INTO [public].nsb_timeouts (id, destination, sagaid, state, dueat, headers, owner) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, coalesce(CAST(split_part(migrator.timeout.store_extra, chr(31), 1) AS TEXT), :param_1) AS coalesce_2
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1);

INSERT INTO [public].timeoutentity (id, destination, sagaid, state, time, headers, endpoint) SELECT CAST(migrator.timeout.store_id AS TEXT) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS TEXT) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, coalesce(CAST(split_part(migrator.timeout.store_extra, chr(31), 1) AS TEXT), :param_1) AS coalesce_2
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1);

INSERT INTO [public].timeoutentity (id, destination, sagaid, state, time, headers, endpoint) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, coalesce(CAST(split_part(migrator.timeout.store_extra, chr(31), 1) AS TEXT), :param_1) AS coalesce_2
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1;

INSERT INTO [public].timeoutentity (id, destination, sagaid, state, time, headers, endpoint) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, coalesce(CAST(split_part(migrator.timeout.store_extra, chr(31), 1) AS TEXT), :param_1) AS coalesce_2
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1);

INSERT INTO [public].timeoutentity (id, destination, sagaid, state, time, headers, endpoint) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, coalesce(CAST(split_part(migrator.timeout.store_extra, chr(31), 1) AS TEXT), :param_1) AS coalesce_2
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1) AND (migrator.timeout.id NOT IN (:id_1));

INSERT INTO [public].timeoutentity (id, destination, sagaid, state, time, headers, endpoint) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, coalesce(CAST(split_part(migrator.timeout.store_extra, chr(31), 1) AS TEXT), :param_1) AS coalesce_2
FROM migrator.timeout
WHERE migrator.timeout.batch_id IS NULL;

INSERT INTO [public].timeoutentity (id, destination, sagaid, state, time, headers, endpoint) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, coalesce(CAST(split_part(migrator.timeout.store_extra, chr(31), 1) AS TEXT), :param_1) AS coalesce_2
FROM migrator.timeout
WHERE migrator.timeout.id IN (:id_1);

INSERT INTO [public].timeoutentity (id, destination, sagaid, state, time, headers, endpoint) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, coalesce(CAST(split_part(migrator.timeout.store_extra, chr(31), 1) AS TEXT), :param_1) AS coalesce_2
FROM migrator.timeout
WHERE migrator.timeout.id IS NULL;

INSERT INTO migrator.batch (run_id, endpoint, source, lane, mode, state, attempt, size, body_bytes, first_due, last_due, lease_token, claimed_at) OUTPUT inserted.id VALUES (:run_id, :endpoint, :source, :lane, :mode, :state, :attempt, :size, :body_bytes, :first_due, :last_due, :lease_token, SYSUTCDATETIME());

INSERT INTO migrator.batch (run_id, endpoint, source, lane, mode, state, attempt, size, body_bytes, first_due, last_due, lease_token, claiming_at, parked_at, destination) OUTPUT inserted.id VALUES (:run_id, :endpoint, :source, :lane, :mode, :state, :attempt, :size, :body_bytes, :first_due, :last_due, :lease_token, :claiming_at, SYSUTCDATETIME(), :destination);

INSERT INTO migrator.batch (run_id, endpoint, source, lane, mode, state, attempt, size, body_bytes, first_due, last_due, owner, lease_token, claiming_at) OUTPUT inserted.id VALUES (:run_id, :endpoint, :source, :lane, :mode, :state, :attempt, :size, :body_bytes, :first_due, :last_due, :owner, :lease_token, SYSUTCDATETIME());

INSERT INTO migrator.batch (run_id, endpoint, source, lane, mode, state, attempt, size, body_bytes, first_due, last_due, owner, lease_token, claiming_at, claimed_at) OUTPUT inserted.id VALUES (:run_id, :endpoint, :source, :lane, :mode, :state, :attempt, :size, :body_bytes, :first_due, :last_due, :owner, :lease_token, :claiming_at, SYSUTCDATETIME());

INSERT INTO migrator.batch (run_id, endpoint, source, lane, mode, state, attempt, size, body_bytes, owner, lease_token, claimed_at) OUTPUT inserted.id VALUES (:run_id, :endpoint, :source, :lane, :mode, :state, :attempt, :size, :body_bytes, :owner, :lease_token, SYSUTCDATETIME());

INSERT INTO migrator.event (at, kind, batch_id, endpoint, actor, detail) OUTPUT inserted.id VALUES (SYSUTCDATETIME(), :kind, :batch_id, :endpoint, :actor, :detail);

INSERT INTO migrator.held_destination (source, destination, endpoint, reason, detail, tries, since, next_try_at) VALUES (:source, :destination, :endpoint, :reason, :detail, :tries, :since, :next_try_at);

INSERT INTO migrator.lease (name, token, until, renewed_at) VALUES (:name, :token, :until, :renewed_at);

INSERT INTO migrator.lease (name, token, until, renewed_at, serves) VALUES (:name, :token, :until, :renewed_at, :serves);

INSERT INTO migrator.ledger (id, [identity], created_at) VALUES (:id, :identity, SYSUTCDATETIME());

INSERT INTO migrator.run (endpoint, source, options, tool_version, status, begun_at) OUTPUT inserted.id VALUES (:endpoint, :source, :options, :tool_version, :status, SYSUTCDATETIME());

INSERT INTO migrator.timeout (source, endpoint, store_id, batch_id, row_index, destination, saga_id, due, body, headers, content_hash, state, reason, reason_detail, store_version, store_extra) OUTPUT inserted.id VALUES (:source, :endpoint, :store_id, :batch_id, :row_index, :destination, :saga_id, :due, :body, :headers, :content_hash, :state, :reason, :reason_detail, :store_version, :store_extra);

INSERT INTO timeouts ([Id], [Destination], [SagaId], [State], [Time], [Headers], [PersistenceVersion]) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, migrator.timeout.persistence_version
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1;

INSERT INTO timeouts ([Id], [Destination], [SagaId], [State], [Time], [Headers], [PersistenceVersion]) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, migrator.timeout.persistence_version
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1);

INSERT INTO timeouts ([Id], [Destination], [SagaId], [State], [Time], [Headers], [PersistenceVersion]) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, migrator.timeout.persistence_version
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1) AND (migrator.timeout.id NOT IN (:id_1));

INSERT INTO timeouts ([Id], [Destination], [SagaId], [State], [Time], [Headers], [PersistenceVersion]) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, migrator.timeout.persistence_version
FROM migrator.timeout
WHERE migrator.timeout.batch_id IS NULL;

INSERT INTO timeouts ([Id], [Destination], [SagaId], [State], [Time], [Headers], [PersistenceVersion]) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, migrator.timeout.persistence_version
FROM migrator.timeout
WHERE migrator.timeout.id IN (:id_1);

INSERT INTO timeouts ([Id], [Destination], [SagaId], [State], [Time], [Headers], [PersistenceVersion]) SELECT CAST(migrator.timeout.store_id AS UUID) AS store_id, migrator.timeout.destination, CAST(migrator.timeout.saga_id AS UUID) AS saga_id, migrator.timeout.body, coalesce(CAST(nullif(split_part(migrator.timeout.store_extra, chr(31), 2), '') AS TIMESTAMP), CAST(migrator.timeout.due AS DATETIME2(6))) AS coalesce_1, migrator.timeout.headers, migrator.timeout.persistence_version
FROM migrator.timeout
WHERE migrator.timeout.id IS NULL;

SELECT CASE WHEN (EXISTS (SELECT *
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time <= :Time_1 AND [public].timeoutentity.time >= :Time_2)) THEN 1 ELSE 0 END AS anon_1;

SELECT CASE WHEN (EXISTS (SELECT *
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time <= :Time_1 AND [public].timeoutentity.time >= :Time_2)) THEN 1 ELSE 0 END AS anon_1, CASE WHEN (EXISTS (SELECT *
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_2 AND [public].timeoutentity.time <= :Time_3 AND [public].timeoutentity.time >= :Time_4)) THEN 1 ELSE 0 END AS anon_2;

SELECT CASE WHEN (EXISTS (SELECT *
FROM timeouts
WHERE timeouts.[Time] <= :Time_1 AND timeouts.[Time] >= :Time_2 AND (timeouts.[Id] NOT IN (:Id_1)))) THEN 1 ELSE 0 END AS anon_1;

SELECT CASE WHEN (EXISTS (SELECT *
FROM timeouts
WHERE timeouts.[Time] <= :Time_1 AND timeouts.[Time] >= :Time_2)) THEN 1 ELSE 0 END AS anon_1;

SELECT CASE WHEN (EXISTS (SELECT *
FROM timeouts
WHERE timeouts.[Time] <= :Time_1 AND timeouts.[Time] >= :Time_2)) THEN 1 ELSE 0 END AS anon_1, CASE WHEN (EXISTS (SELECT *
FROM timeouts
WHERE timeouts.[Time] <= :Time_3 AND timeouts.[Time] >= :Time_4)) THEN 1 ELSE 0 END AS anon_2;

SELECT CASE WHEN (migrator.lease.owner IS NOT NULL AND migrator.lease.until > SYSUTCDATETIME()) THEN 1 ELSE 0 END AS anon_1
FROM migrator.lease WITH (UPDLOCK, ROWLOCK)
WHERE migrator.lease.name = :name_1;

SELECT CAST([public].[TimeoutsMigration_State].[MigrationRunId] AS NVARCHAR(500)) AS [MigrationRunId], CAST([public].[TimeoutsMigration_State].[EndpointName] AS NVARCHAR(500)) AS [EndpointName]
FROM [public].[TimeoutsMigration_State]
WHERE CAST([public].[TimeoutsMigration_State].[Status] AS NVARCHAR(500)) IN (:param_1);

SELECT CAST([public].migrationsentity.[MigrationRunId] AS NVARCHAR(500)) AS [MigrationRunId], CAST([public].migrationsentity.[EndpointName] AS NVARCHAR(500)) AS [EndpointName]
FROM [public].migrationsentity
WHERE CAST([public].migrationsentity.[Status] AS NVARCHAR(500)) IN (:param_1);

SELECT CAST([public].migrationsentity.migrationrunid AS NVARCHAR(500)) AS migrationrunid, CAST([public].migrationsentity.endpointname AS NVARCHAR(500)) AS endpointname
FROM [public].migrationsentity
WHERE CAST([public].migrationsentity.status AS NVARCHAR(500)) IN (:param_1);

SELECT DISTINCT [public].timeoutentity.endpoint
FROM [public].timeoutentity;

SELECT DISTINCT migrator.batch.lane
FROM migrator.batch
WHERE migrator.batch.state IN (:state_1);

SELECT DISTINCT migrator.batch.lane
FROM migrator.batch
WHERE migrator.batch.state IN (:state_1) AND migrator.batch.lane < :lane_1;

SELECT DISTINCT migrator.batch.source
FROM migrator.batch;

SELECT DISTINCT migrator.batch.source
FROM migrator.batch
WHERE migrator.batch.endpoint IN (:endpoint_1);

SELECT DISTINCT migrator.run.endpoint, migrator.run.source
FROM migrator.run;

SELECT DISTINCT migrator.timeout.source
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1;

SELECT DISTINCT migrator.timeout.source
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.endpoint IN (:endpoint_1);

SELECT DISTINCT migrator.timeout.source
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.store_id = :store_id_1 AND migrator.timeout.batch_id IN (SELECT of_mode.id
FROM migrator.batch AS of_mode
WHERE of_mode.mode = :mode_1);

SELECT DISTINCT migrator.timeout.source, migrator.timeout.endpoint
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1;

SELECT SYSUTCDATETIME() AS anon_1;

SELECT TOP :param_1 [public].[TimeoutData_migration_abc].[Status]
FROM [public].[TimeoutData_migration_abc]
WHERE CAST([public].[TimeoutData_migration_abc].[Status] AS NVARCHAR(500)) != :param_2;

SELECT TOP :param_1 [public].stagedtimeoutentity.batchstate
FROM [public].stagedtimeoutentity
WHERE CAST([public].stagedtimeoutentity.batchstate AS NVARCHAR(500)) != :param_2;

SELECT TOP :param_1 [public].timeoutentity.id
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1;

SELECT TOP :param_1 lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.id > :param_3 ORDER BY [public].timeoutentity.id;

SELECT TOP :param_1 lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 ORDER BY [public].timeoutentity.id;

SELECT TOP :param_1 lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time >= :Time_3 AND [public].timeoutentity.time <= :Time_4 AND NOT ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_2 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_3 OR [public].timeoutentity.destination IS NULL) ORDER BY [public].timeoutentity.id;

SELECT TOP :param_1 lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time >= :Time_3 AND [public].timeoutentity.time <= :Time_4 AND NOT ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_2 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_3 OR [public].timeoutentity.destination IS NULL) ORDER BY [public].timeoutentity.id DESC;

SELECT TOP :param_1 lower(CAST(timeouts.[Id] AS CHAR(36))) AS id
FROM timeouts
WHERE timeouts.[Time] <= :Time_1 AND timeouts.[Time] >= :Time_2 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL ORDER BY timeouts.[Time];

SELECT TOP :param_1 lower(CAST(timeouts.[Id] AS CHAR(36))) AS id
FROM timeouts
WHERE timeouts.[Time] <= :Time_1 AND timeouts.[Time] >= :Time_2 AND (timeouts.[Id] NOT IN (:Id_1)) AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL ORDER BY timeouts.[Time];

SELECT TOP :param_1 lower(CAST(timeouts.[Id] AS CHAR(36))) AS id
FROM timeouts
WHERE timeouts.[Time] <= :Time_1 AND timeouts.[Time] >= :Time_2 AND timeouts.[Time] >= :Time_3 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL ORDER BY timeouts.[Time];

SELECT TOP :param_1 lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Id] > :param_3 ORDER BY timeouts.[Id];

SELECT TOP :param_1 lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts ORDER BY timeouts.[Id];

SELECT TOP :param_1 lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Time] >= :Time_3 AND timeouts.[Time] <= :Time_4 AND NOT (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_2 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_3 OR timeouts.[Destination] IS NULL) ORDER BY timeouts.[Id];

SELECT TOP :param_1 lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Time] >= :Time_3 AND timeouts.[Time] <= :Time_4 AND NOT (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_2 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_3 OR timeouts.[Destination] IS NULL) ORDER BY timeouts.[Id] DESC;

SELECT TOP :param_1 migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.claiming_at IS NOT NULL;

SELECT TOP :param_1 migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.destination IS NOT NULL AND migrator.batch.source IN (:source_1) AND migrator.batch.mode != :mode_1;

SELECT TOP :param_1 migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.destination IS NOT NULL AND migrator.batch.source IN (:source_1) AND migrator.batch.mode = :mode_1;

SELECT TOP :param_1 migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.source = :source_1;

SELECT TOP :param_1 migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND (migrator.batch.last_due IS NULL OR migrator.batch.last_due > :last_due_1);

SELECT TOP :param_1 migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.run_id = :run_id_1 AND (migrator.batch.last_due IS NULL OR migrator.batch.last_due > :last_due_1);

SELECT TOP :param_1 migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.source = :source_1 AND migrator.batch.mode != :mode_1 AND migrator.batch.destination = :destination_1 AND migrator.batch.first_due <= :first_due_1 ORDER BY migrator.batch.first_due, migrator.batch.id;

SELECT TOP :param_1 migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.source = :source_1 AND migrator.batch.mode != :mode_1 AND migrator.batch.destination = :destination_1 ORDER BY migrator.batch.first_due, migrator.batch.id;

SELECT TOP :param_1 migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch
WHERE migrator.batch.lane IN (:lane_1) AND migrator.batch.state = :state_1 AND migrator.batch.lease_token = :lease_token_1;

SELECT TOP :param_1 migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch
WHERE migrator.batch.lane IN (:lane_1) AND migrator.batch.state = :state_1 AND migrator.batch.lease_token = :lease_token_1 AND (migrator.batch.run_id NOT IN (:run_id_1));

SELECT TOP :param_1 migrator.batch.id, migrator.batch.run_id, migrator.batch.size
FROM migrator.batch
WHERE migrator.batch.lane = :lane_1 AND migrator.batch.state = :state_1 AND migrator.batch.dispatched_at < :dispatched_at_1 AND (SELECT TOP :param_2 migrator.timeout.id
FROM migrator.timeout
WHERE migrator.timeout.batch_id = migrator.batch.id AND migrator.timeout.state IS NULL) IS NOT NULL ORDER BY migrator.batch.id;

SELECT TOP :param_1 migrator.event.id, migrator.event.at, migrator.event.kind, migrator.event.batch_id, migrator.event.endpoint, migrator.event.actor, migrator.event.detail
FROM migrator.event
WHERE migrator.event.kind = :kind_1 ORDER BY migrator.event.id DESC;

SELECT TOP :param_1 migrator.lease.name
FROM migrator.lease;

SELECT TOP :param_1 migrator.run.status
FROM migrator.run
WHERE migrator.run.source = :source_1 ORDER BY migrator.run.id DESC;

SELECT TOP :param_1 migrator.timeout.id
FROM migrator.timeout
WHERE migrator.timeout.id > :id_1 AND migrator.timeout.batch_id IN (SELECT migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.claimed_at >= :claimed_at_1) ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK) JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.batch_id IN (SELECT of_mode.id
FROM migrator.batch AS of_mode
WHERE of_mode.mode = :mode_1) AND migrator.timeout.source = :source_1 AND migrator.timeout.id > :id_1 AND (migrator.batch.state NOT IN (:state_2)) ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK) JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.source = :source_1 AND migrator.timeout.id > :id_1 AND (migrator.batch.state NOT IN (:state_2)) ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK) JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.store_id = :store_id_1 AND migrator.timeout.batch_id IN (SELECT of_mode.id
FROM migrator.batch AS of_mode
WHERE of_mode.mode = :mode_1) AND migrator.timeout.source = :source_1 AND migrator.timeout.id > :id_1 AND (migrator.batch.state NOT IN (:state_2)) ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK) JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.store_id = :store_id_1 AND migrator.timeout.source = :source_1 AND migrator.timeout.id > :id_1 AND (migrator.batch.state NOT IN (:state_2)) ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id, coalesce(DATALENGTH(migrator.timeout.headers), 0) AS headers_bytes, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.store_id = :store_id_1 AND migrator.timeout.id > :id_1 ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.batch_id, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.due, migrator.batch.run_id, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes, coalesce(DATALENGTH(migrator.timeout.headers), 0) AS headers_bytes
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK) JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.timeout.source = :source_1 AND migrator.timeout.endpoint = :endpoint_1 AND migrator.timeout.state = :state_1 AND migrator.timeout.due <= :due_1 AND migrator.timeout.going_back IS NULL AND migrator.timeout.reason != :reason_1 AND migrator.batch.mode != :mode_1 AND (migrator.batch.state NOT IN (:state_2)) AND migrator.batch.id <= :id_1 ORDER BY migrator.timeout.due, migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.batch_id, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.due, migrator.batch.run_id, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes, coalesce(DATALENGTH(migrator.timeout.headers), 0) AS headers_bytes
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK) JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.timeout.source = :source_1 AND migrator.timeout.endpoint = :endpoint_1 AND migrator.timeout.state = :state_1 AND migrator.timeout.due > :due_1 AND migrator.timeout.going_back IS NULL AND migrator.timeout.reason != :reason_1 AND migrator.batch.mode != :mode_1 AND (migrator.batch.state NOT IN (:state_2)) AND migrator.batch.id <= :id_1 ORDER BY migrator.timeout.due, migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.batch_id, migrator.timeout.state, migrator.batch.state AS batch_state
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK) JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.batch.state IN (:state_1) AND CASE WHEN (migrator.batch.state = :state_2) THEN migrator.batch.handed_over_at WHEN (migrator.batch.state = :state_3) THEN migrator.batch.dispatched_at WHEN (migrator.batch.state = :state_4) THEN migrator.batch.released_at END < :param_2 AND (migrator.batch.first_due IS NULL OR migrator.batch.first_due < :first_due_1) AND migrator.timeout.due < :due_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state IN (:state_5)) AND migrator.timeout.going_back IS NULL;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.batch_id, migrator.timeout.state, migrator.batch.state AS batch_state
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK) JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.batch.state IN (:state_1) AND CASE WHEN (migrator.batch.state = :state_2) THEN migrator.batch.handed_over_at WHEN (migrator.batch.state = :state_3) THEN migrator.batch.dispatched_at WHEN (migrator.batch.state = :state_4) THEN migrator.batch.released_at END < :param_2 AND (migrator.batch.first_due IS NULL OR migrator.batch.first_due < :first_due_1) AND migrator.timeout.due < :due_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state IN (:state_5)) AND migrator.timeout.going_back IS NULL AND migrator.batch.run_id = :run_id_1;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id, migrator.timeout.destination, migrator.timeout.saga_id, migrator.timeout.due, migrator.timeout.body, migrator.timeout.headers, migrator.timeout.store_version, migrator.timeout.store_extra, (SELECT migrator.batch.ledger_id
FROM migrator.batch
WHERE migrator.batch.id = migrator.timeout.batch_id) AS ledger_id
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK)
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.batch_id IN (SELECT migrator.batch.id
FROM migrator.batch
WHERE (migrator.batch.state NOT IN (:state_2))) AND migrator.timeout.id > :id_1 AND migrator.timeout.source = :source_1 ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id, migrator.timeout.destination, migrator.timeout.saga_id, migrator.timeout.due, migrator.timeout.body, migrator.timeout.headers, migrator.timeout.store_version, migrator.timeout.store_extra, (SELECT migrator.batch.ledger_id
FROM migrator.batch
WHERE migrator.batch.id = migrator.timeout.batch_id) AS ledger_id
FROM migrator.timeout WITH (UPDLOCK, ROWLOCK)
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.batch_id IN (SELECT migrator.batch.id
FROM migrator.batch
WHERE (migrator.batch.state NOT IN (:state_2))) AND migrator.timeout.id > :id_1 ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.source, migrator.timeout.endpoint, migrator.timeout.store_id, migrator.timeout.batch_id, migrator.timeout.row_index, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END AS destination, migrator.timeout.saga_id, migrator.timeout.due, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.persistence_version ELSE migrator.timeout.persistence_version END AS persistence_version, migrator.timeout.content_hash, migrator.timeout.state, migrator.timeout.reason, migrator.timeout.reason_detail, migrator.timeout.store_version, migrator.timeout.store_extra, migrator.timeout.going_back, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.endpoint IN (:endpoint_1) AND migrator.timeout.id > :id_1 ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.source, migrator.timeout.endpoint, migrator.timeout.store_id, migrator.timeout.batch_id, migrator.timeout.row_index, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END AS destination, migrator.timeout.saga_id, migrator.timeout.due, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.persistence_version ELSE migrator.timeout.persistence_version END AS persistence_version, migrator.timeout.content_hash, migrator.timeout.state, migrator.timeout.reason, migrator.timeout.reason_detail, migrator.timeout.store_version, migrator.timeout.store_extra, migrator.timeout.going_back, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.id > :id_1 ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.source, migrator.timeout.endpoint, migrator.timeout.store_id, migrator.timeout.batch_id, migrator.timeout.row_index, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END AS destination, migrator.timeout.saga_id, migrator.timeout.due, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.persistence_version ELSE migrator.timeout.persistence_version END AS persistence_version, migrator.timeout.content_hash, migrator.timeout.state, migrator.timeout.reason, migrator.timeout.reason_detail, migrator.timeout.store_version, migrator.timeout.store_extra, migrator.timeout.going_back, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.reason = :reason_1 AND migrator.timeout.id > :id_1 ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.source, migrator.timeout.endpoint, migrator.timeout.store_id, migrator.timeout.batch_id, migrator.timeout.row_index, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END AS destination, migrator.timeout.saga_id, migrator.timeout.due, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.persistence_version ELSE migrator.timeout.persistence_version END AS persistence_version, migrator.timeout.content_hash, migrator.timeout.state, migrator.timeout.reason, migrator.timeout.reason_detail, migrator.timeout.store_version, migrator.timeout.store_extra, migrator.timeout.going_back, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.store_id = :store_id_1 AND migrator.timeout.batch_id IN (SELECT of_mode.id
FROM migrator.batch AS of_mode
WHERE of_mode.mode = :mode_1) AND migrator.timeout.id > :id_1 ORDER BY migrator.timeout.id;

SELECT TOP :param_1 migrator.timeout.id, migrator.timeout.source, migrator.timeout.endpoint, migrator.timeout.store_id, migrator.timeout.batch_id, migrator.timeout.row_index, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END AS destination, migrator.timeout.saga_id, migrator.timeout.due, migrator.timeout.body, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.headers ELSE migrator.timeout.headers END AS headers, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.persistence_version ELSE migrator.timeout.persistence_version END AS persistence_version, migrator.timeout.content_hash, migrator.timeout.state, migrator.timeout.reason, migrator.timeout.reason_detail, migrator.timeout.store_version, migrator.timeout.store_extra, migrator.timeout.going_back, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.store_id = :store_id_1 AND migrator.timeout.id > :id_1 ORDER BY migrator.timeout.id;

SELECT TOP :param_1 timeouts.[Destination], timeouts.[Headers]
FROM timeouts ORDER BY timeouts.[Id];

SELECT TOP :param_1 timeouts.[Id]
FROM timeouts;

SELECT [public].timeoutentity.id
FROM [public].timeoutentity
WHERE 1 = 0;

SELECT [public].timeoutentity.id
FROM [public].timeoutentity
WHERE [public].timeoutentity.id IN (:Id_1);

SELECT anon_1.handed_over_at, anon_1.dispatched_at, anon_1.size
FROM (SELECT TOP :param_1 migrator.batch.handed_over_at AS handed_over_at, migrator.batch.dispatched_at AS dispatched_at, migrator.batch.size AS size
FROM migrator.batch ORDER BY migrator.batch.id DESC) AS anon_1
WHERE anon_1.handed_over_at >= :handed_over_at_1 OR anon_1.dispatched_at >= :dispatched_at_1;

SELECT anon_2.anon_1
FROM (SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS anon_1, ROW_NUMBER() OVER (ORDER BY [public].timeoutentity.id) AS mssql_rn
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1) AS anon_2
WHERE mssql_rn > :param_1 AND mssql_rn <= :param_2 + :param_1;

SELECT anon_2.anon_1
FROM (SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS anon_1, ROW_NUMBER() OVER (ORDER BY timeouts.[Id]) AS mssql_rn
FROM timeouts) AS anon_2
WHERE mssql_rn > :param_1 AND mssql_rn <= :param_2 + :param_1;

SELECT coalesce(sum(CASE WHEN (anon_1.is_past = :is_past_1) THEN anon_1.rest ELSE :param_1 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (anon_1.is_far = :is_far_1) THEN anon_1.rest ELSE :param_2 END), :coalesce_4) AS coalesce_3, min(CASE WHEN (anon_1.is_far = :is_far_2) THEN anon_1.first_due END) AS min_1
FROM (SELECT 0 AS is_past, 0 AS is_far, migrator.batch.size - coalesce(anon_2.rows, :coalesce_5) AS rest, migrator.batch.first_due AS first_due
FROM migrator.batch LEFT OUTER JOIN (SELECT migrator.timeout.batch_id AS batch_id, count(*) AS rows
FROM migrator.timeout
WHERE migrator.timeout.state IS NOT NULL GROUP BY migrator.timeout.batch_id) AS anon_2 ON anon_2.batch_id = migrator.batch.id
WHERE migrator.batch.state = :state_1 AND migrator.batch.run_id = :run_id_1) AS anon_1;

SELECT coalesce(sum(CASE WHEN (anon_1.is_past = :is_past_1) THEN anon_1.rest ELSE :param_1 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (anon_1.is_far = :is_far_1) THEN anon_1.rest ELSE :param_2 END), :coalesce_4) AS coalesce_3, min(CASE WHEN (anon_1.is_far = :is_far_2) THEN anon_1.first_due END) AS min_1
FROM (SELECT 0 AS is_past, 0 AS is_far, migrator.batch.size - coalesce(anon_2.rows, :coalesce_5) AS rest, migrator.batch.first_due AS first_due
FROM migrator.batch LEFT OUTER JOIN (SELECT migrator.timeout.batch_id AS batch_id, count(*) AS rows
FROM migrator.timeout
WHERE migrator.timeout.state IS NOT NULL GROUP BY migrator.timeout.batch_id) AS anon_2 ON anon_2.batch_id = migrator.batch.id
WHERE migrator.batch.state = :state_1) AS anon_1;

SELECT coalesce(sum(CASE WHEN (anon_1.is_past = :is_past_1) THEN anon_1.rest ELSE :param_1 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (anon_1.is_far = :is_far_1) THEN anon_1.rest ELSE :param_2 END), :coalesce_4) AS coalesce_3, min(CASE WHEN (anon_1.is_far = :is_far_2) THEN anon_1.first_due END) AS min_1
FROM (SELECT CASE WHEN (migrator.batch.last_due <= :last_due_1) THEN 1 ELSE 0 END AS is_past, CASE WHEN (migrator.batch.first_due >= :first_due_1 AND (EXISTS (SELECT timeout_1.id
FROM migrator.timeout AS timeout_1
WHERE timeout_1.batch_id = migrator.batch.id AND timeout_1.state IS NULL))) THEN 1 ELSE 0 END AS is_far, migrator.batch.size - coalesce(anon_2.rows, :coalesce_5) AS rest, migrator.batch.first_due AS first_due
FROM migrator.batch LEFT OUTER JOIN (SELECT migrator.timeout.batch_id AS batch_id, count(*) AS rows
FROM migrator.timeout
WHERE migrator.timeout.state IS NOT NULL GROUP BY migrator.timeout.batch_id) AS anon_2 ON anon_2.batch_id = migrator.batch.id
WHERE migrator.batch.state = :state_1 AND migrator.batch.run_id = :run_id_1) AS anon_1;

SELECT coalesce(sum(CASE WHEN (anon_1.is_past = :is_past_1) THEN anon_1.rest ELSE :param_1 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (anon_1.is_far = :is_far_1) THEN anon_1.rest ELSE :param_2 END), :coalesce_4) AS coalesce_3, min(CASE WHEN (anon_1.is_far = :is_far_2) THEN anon_1.first_due END) AS min_1
FROM (SELECT CASE WHEN (migrator.batch.last_due <= :last_due_1) THEN 1 ELSE 0 END AS is_past, CASE WHEN (migrator.batch.first_due >= :first_due_1 AND (EXISTS (SELECT timeout_1.id
FROM migrator.timeout AS timeout_1
WHERE timeout_1.batch_id = migrator.batch.id AND timeout_1.state IS NULL))) THEN 1 ELSE 0 END AS is_far, migrator.batch.size - coalesce(anon_2.rows, :coalesce_5) AS rest, migrator.batch.first_due AS first_due
FROM migrator.batch LEFT OUTER JOIN (SELECT migrator.timeout.batch_id AS batch_id, count(*) AS rows
FROM migrator.timeout
WHERE migrator.timeout.state IS NOT NULL GROUP BY migrator.timeout.batch_id) AS anon_2 ON anon_2.batch_id = migrator.batch.id
WHERE migrator.batch.state = :state_1) AS anon_1;

SELECT coalesce(sum(CASE WHEN (migrator.timeout.due >= :due_1) THEN :param_1 ELSE :param_2 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (migrator.timeout.due > :due_2 AND migrator.timeout.due < :due_1) THEN :param_3 ELSE :param_4 END), :coalesce_4) AS coalesce_3, coalesce(sum(CASE WHEN (migrator.timeout.due <= :due_3) THEN :param_5 ELSE :param_6 END), :coalesce_6) AS coalesce_5, min(CASE WHEN (migrator.timeout.due >= :due_1) THEN migrator.timeout.due END) AS min_1
FROM migrator.timeout
WHERE migrator.timeout.batch_id IN (:batch_id_1) AND migrator.timeout.state IS NULL;

SELECT coalesce(sum(CASE WHEN (migrator.timeout.due >= :due_1) THEN :param_1 ELSE :param_2 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (migrator.timeout.due > :due_2 AND migrator.timeout.due < :due_1) THEN :param_3 ELSE :param_4 END), :coalesce_4) AS coalesce_3, coalesce(sum(CASE WHEN (migrator.timeout.due <= :due_3) THEN :param_5 ELSE :param_6 END), :coalesce_6) AS coalesce_5, min(CASE WHEN (migrator.timeout.due >= :due_1) THEN migrator.timeout.due END) AS min_1
FROM migrator.timeout
WHERE migrator.timeout.batch_id IN (:batch_id_1) AND migrator.timeout.state IS NULL AND migrator.timeout.due >= :due_4;

SELECT count(*) AS count_1
FROM (SELECT TOP :param_1 1 AS one
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time <= :Time_1 AND [public].timeoutentity.time >= :Time_2 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL) AS anon_1;

SELECT count(*) AS count_1
FROM (SELECT TOP :param_1 1 AS one
FROM timeouts
WHERE timeouts.[Time] <= :Time_1 AND timeouts.[Time] >= :Time_2 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL) AS anon_1;

SELECT count(*) AS count_1
FROM (SELECT TOP :param_1 [public].timeoutentity.endpoint AS endpoint
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint IS NULL OR [public].timeoutentity.endpoint = :Endpoint_1) AS anon_1;

SELECT count(*) AS count_1
FROM (SELECT [public].nsb_timeouts.owner AS owner
FROM [public].nsb_timeouts
WHERE 1 = 0 UNION ALL SELECT :param_1 AS anon_1) AS probe
WHERE probe.owner = :owner_1;

SELECT count(*) AS count_1
FROM (SELECT [public].timeoutentity.endpoint AS owner
FROM [public].timeoutentity
WHERE 1 = 0 UNION ALL SELECT :param_1 AS anon_1) AS probe
WHERE probe.owner = :owner_1;

SELECT count(*) AS count_1
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1;

SELECT count(*) AS count_1
FROM migrator.batch
WHERE migrator.batch.source != :source_1 AND migrator.batch.state IN (:state_1);

SELECT count(*) AS count_1
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.source IN (:source_1);

SELECT count(*) AS count_1
FROM migrator.timeout
WHERE migrator.timeout.going_back = :going_back_1;

SELECT count(*) AS count_1
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.source = :source_1;

SELECT count(*) AS count_1
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 AND migrator.timeout.source IN (:source_1);

SELECT count(*) AS count_1
FROM timeouts;

SELECT count(*) AS count_1
FROM timeouts
WHERE (SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL;

SELECT count(*) AS count_1, max(migrator.timeout.due) AS max_1
FROM migrator.timeout JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.batch.source = :source_1 AND migrator.batch.state = :state_1 AND migrator.timeout.state IS NULL AND migrator.timeout.due > SYSUTCDATETIME();

SELECT count(migrator.lease.position) AS count_1
FROM migrator.lease;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped.size AS BIGINT)) AS size, min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN 0 ELSE 1 END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed.size AS size, timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT [public].timeoutentity.time AS due, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_1 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DATALENGTH([public].timeoutentity.state), 0) + coalesce(DATALENGTH([public].timeoutentity.headers) / 2, 0) AS size, lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1) AS timed) AS grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped.size AS BIGINT)) AS size, min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN 0 ELSE 1 END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed.size AS size, timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT timeouts.[Time] AS due, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, timeouts.[Destination] COLLATE Latin1_General_100_BIN2 AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_1 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DATALENGTH(timeouts.[State]), 0) + coalesce(DATALENGTH(timeouts.[Headers]) / 2, 0) AS size, lower(CAST(timeouts.[Id] AS CHAR(36))) AS id
FROM timeouts) AS timed) AS grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped.size AS BIGINT)) AS size, min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE 62 END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed.size AS size, timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT [public].timeoutentity.time AS due, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 AS destination, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_2 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_3) THEN 1 ELSE 0 END AS is_odd, coalesce(DATALENGTH([public].timeoutentity.state), 0) + coalesce(DATALENGTH([public].timeoutentity.headers) / 2, 0) AS size, lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1) AS timed) AS grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped.size AS BIGINT)) AS size, min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE 62 END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed.size AS size, timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT timeouts.[Time] AS due, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, timeouts.[Destination] COLLATE Latin1_General_100_BIN2 AS destination, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_2 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_3) THEN 1 ELSE 0 END AS is_odd, coalesce(DATALENGTH(timeouts.[State]), 0) + coalesce(DATALENGTH(timeouts.[Headers]) / 2, 0) AS size, lower(CAST(timeouts.[Id] AS CHAR(36))) AS id
FROM timeouts) AS timed) AS grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped.size AS BIGINT)) AS size, min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed.size AS size, timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT [public].timeoutentity.time AS due, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 AS destination, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_2 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_3) THEN 1 ELSE 0 END AS is_odd, coalesce(DATALENGTH([public].timeoutentity.state), 0) + coalesce(DATALENGTH([public].timeoutentity.headers) / 2, 0) AS size, lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1) AS timed) AS grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped.size AS BIGINT)) AS size, min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed.size AS size, timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT [public].timeoutentity.time AS due, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_1 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DATALENGTH([public].timeoutentity.state), 0) + coalesce(DATALENGTH([public].timeoutentity.headers) / 2, 0) AS size, lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.id < :param_3) AS timed) AS grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped.size AS BIGINT)) AS size, min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed.size AS size, timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT [public].timeoutentity.time AS due, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_1 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DATALENGTH([public].timeoutentity.state), 0) + coalesce(DATALENGTH([public].timeoutentity.headers) / 2, 0) AS size, lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1) AS timed) AS grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped.size AS BIGINT)) AS size, min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed.size AS size, timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT timeouts.[Time] AS due, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, timeouts.[Destination] COLLATE Latin1_General_100_BIN2 AS destination, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_2 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_3) THEN 1 ELSE 0 END AS is_odd, coalesce(DATALENGTH(timeouts.[State]), 0) + coalesce(DATALENGTH(timeouts.[Headers]) / 2, 0) AS size, lower(CAST(timeouts.[Id] AS CHAR(36))) AS id
FROM timeouts) AS timed) AS grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped.size AS BIGINT)) AS size, min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed.size AS size, timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT timeouts.[Time] AS due, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, timeouts.[Destination] COLLATE Latin1_General_100_BIN2 AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_1 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DATALENGTH(timeouts.[State]), 0) + coalesce(DATALENGTH(timeouts.[Headers]) / 2, 0) AS size, lower(CAST(timeouts.[Id] AS CHAR(36))) AS id
FROM timeouts
WHERE timeouts.[Id] < :param_3) AS timed) AS grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped.size AS BIGINT)) AS size, min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed.size AS size, timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT timeouts.[Time] AS due, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, timeouts.[Destination] COLLATE Latin1_General_100_BIN2 AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_1 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DATALENGTH(timeouts.[State]), 0) + coalesce(DATALENGTH(timeouts.[Headers]) / 2, 0) AS size, lower(CAST(timeouts.[Id] AS CHAR(36))) AS id
FROM timeouts) AS timed) AS grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT lower(CAST([public].[my.own timeouts].[Id] AS CHAR(36))) AS anon_1
FROM [public].[my.own timeouts]
WHERE [public].[my.own timeouts].[Id] IN (:Id_1);

SELECT lower(CAST([public].nsb_timeouts.id AS CHAR(36))) AS anon_1
FROM [public].nsb_timeouts
WHERE [public].nsb_timeouts.id IN (:Id_1);

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS anon_1
FROM [public].timeoutentity
WHERE [public].timeoutentity.id IN (:Id_1);

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.id IN (:Id_1);

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time > :Time_3 AND [public].timeoutentity.time <= :Time_4 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_2 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL AND ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_3 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_4 OR [public].timeoutentity.destination IS NULL OR [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 IN (:param_5));

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time > :Time_3 AND [public].timeoutentity.time <= :Time_4 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_2 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL AND [public].timeoutentity.time > :Time_5 AND [public].timeoutentity.time <= :Time_6 AND NOT ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_3 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_4 OR [public].timeoutentity.destination IS NULL OR [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 IN (:param_5));

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time >= :Time_3 AND [public].timeoutentity.time <= :Time_4 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_2 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL AND ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_3 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_4 OR [public].timeoutentity.destination IS NULL OR [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 IN (:param_5));

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time >= :Time_3 AND [public].timeoutentity.time <= :Time_4 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_2 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL AND [public].timeoutentity.time > :Time_5 AND [public].timeoutentity.time <= :Time_6 AND NOT ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_3 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_4 OR [public].timeoutentity.destination IS NULL OR [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 IN (:param_5));

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.id < :param_1 AND [public].timeoutentity.id IN (:Id_1);

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.id < :param_1 AND [public].timeoutentity.time >= :Time_3 AND [public].timeoutentity.time <= :Time_4 AND ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_2 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_3 OR [public].timeoutentity.destination IS NULL OR [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 IN (:param_4));

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.id < :param_1 AND [public].timeoutentity.time >= :Time_3 AND [public].timeoutentity.time <= :Time_4 AND [public].timeoutentity.time > :Time_5 AND [public].timeoutentity.time <= :Time_6 AND NOT ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_2 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_3 OR [public].timeoutentity.destination IS NULL OR [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 IN (:param_4));

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.id IN (:Id_1);

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time >= :Time_3 AND [public].timeoutentity.time <= :Time_4 AND ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_1 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_2 OR [public].timeoutentity.destination IS NULL OR [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 IN (:param_3));

SELECT lower(CAST([public].timeoutentity.id AS CHAR(36))) AS id, [public].timeoutentity.destination AS destination, CASE WHEN ([public].timeoutentity.time BETWEEN :Time_1 AND :Time_2) THEN [public].timeoutentity.time ELSE NULL END AS due_at, [public].timeoutentity.headers AS headers_text, coalesce(DATALENGTH([public].timeoutentity.state), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time >= :Time_3 AND [public].timeoutentity.time <= :Time_4 AND [public].timeoutentity.time > :Time_5 AND [public].timeoutentity.time <= :Time_6 AND NOT ([public].timeoutentity.headers IS NULL OR [public].timeoutentity.headers NOT LIKE :Headers_1 OR coalesce(DATALENGTH([public].timeoutentity.state), 0) > :param_1 OR coalesce(DATALENGTH([public].timeoutentity.headers), 0) > :param_2 OR [public].timeoutentity.destination IS NULL OR [public].timeoutentity.destination COLLATE Latin1_General_100_BIN2 IN (:param_3));

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS anon_1
FROM timeouts
WHERE timeouts.[Id] IN (:Id_1);

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Id] IN (:Id_1);

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Time] > :Time_3 AND timeouts.[Time] <= :Time_4 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_2 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL AND (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_3 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_4 OR timeouts.[Destination] IS NULL OR timeouts.[Destination] COLLATE Latin1_General_100_BIN2 IN (:param_5));

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Time] > :Time_3 AND timeouts.[Time] <= :Time_4 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_2 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL AND timeouts.[Time] > :Time_5 AND timeouts.[Time] <= :Time_6 AND NOT (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_3 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_4 OR timeouts.[Destination] IS NULL OR timeouts.[Destination] COLLATE Latin1_General_100_BIN2 IN (:param_5));

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Time] >= :Time_3 AND timeouts.[Time] <= :Time_4 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_2 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL AND (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_3 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_4 OR timeouts.[Destination] IS NULL OR timeouts.[Destination] COLLATE Latin1_General_100_BIN2 IN (:param_5));

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN ((SELECT TOP :param_1 1
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Time] >= :Time_3 AND timeouts.[Time] <= :Time_4 AND (SELECT TOP :param_2 1
FROM migrator.timeout AS known
WHERE known.source = :source_2 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) IS NULL AND timeouts.[Time] > :Time_5 AND timeouts.[Time] <= :Time_6 AND NOT (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_3 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_4 OR timeouts.[Destination] IS NULL OR timeouts.[Destination] COLLATE Latin1_General_100_BIN2 IN (:param_5));

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Id] < :param_1 AND timeouts.[Id] IN (:Id_1);

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Id] < :param_1 AND timeouts.[Time] >= :Time_3 AND timeouts.[Time] <= :Time_4 AND (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_2 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_3 OR timeouts.[Destination] IS NULL OR timeouts.[Destination] COLLATE Latin1_General_100_BIN2 IN (:param_4));

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Id] < :param_1 AND timeouts.[Time] >= :Time_3 AND timeouts.[Time] <= :Time_4 AND timeouts.[Time] > :Time_5 AND timeouts.[Time] <= :Time_6 AND NOT (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_2 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_3 OR timeouts.[Destination] IS NULL OR timeouts.[Destination] COLLATE Latin1_General_100_BIN2 IN (:param_4));

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Id] IN (:Id_1);

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Time] >= :Time_3 AND timeouts.[Time] <= :Time_4 AND (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_1 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_2 OR timeouts.[Destination] IS NULL OR timeouts.[Destination] COLLATE Latin1_General_100_BIN2 IN (:param_3));

SELECT lower(CAST(timeouts.[Id] AS CHAR(36))) AS id, timeouts.[Destination] AS destination, CASE WHEN (timeouts.[Time] BETWEEN :Time_1 AND :Time_2) THEN timeouts.[Time] ELSE NULL END AS due_at, timeouts.[Headers] AS headers_text, coalesce(DATALENGTH(timeouts.[State]), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts.[Time] >= :Time_3 AND timeouts.[Time] <= :Time_4 AND timeouts.[Time] > :Time_5 AND timeouts.[Time] <= :Time_6 AND NOT (timeouts.[Headers] IS NULL OR timeouts.[Headers] NOT LIKE :Headers_1 OR coalesce(DATALENGTH(timeouts.[State]), 0) > :param_1 OR coalesce(DATALENGTH(timeouts.[Headers]), 0) > :param_2 OR timeouts.[Destination] IS NULL OR timeouts.[Destination] COLLATE Latin1_General_100_BIN2 IN (:param_3));

SELECT max(migrator.batch.id) AS max_1
FROM migrator.batch;

SELECT max(migrator.run.id) AS max_1
FROM migrator.run
WHERE migrator.run.source = :source_1 AND migrator.run.endpoint = :endpoint_1;

SELECT max(migrator.timeout.row_index) AS max_1
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1;

SELECT migrator.batch.endpoint, migrator.batch.source, migrator.batch.destination, sum(migrator.batch.size) AS rows
FROM migrator.batch
WHERE migrator.batch.destination IS NOT NULL AND migrator.batch.state = :state_1 AND migrator.batch.source IN (:source_1) GROUP BY migrator.batch.endpoint, migrator.batch.source, migrator.batch.destination;

SELECT migrator.batch.endpoint, migrator.batch.source, migrator.batch.destination, sum(migrator.batch.size) AS rows
FROM migrator.batch
WHERE migrator.batch.destination IS NOT NULL AND migrator.batch.state = :state_1 GROUP BY migrator.batch.endpoint, migrator.batch.source, migrator.batch.destination;

SELECT migrator.batch.endpoint, migrator.batch.source, sum(migrator.batch.size) AS sum_1, sum(migrator.batch.purged) AS sum_2
FROM migrator.batch GROUP BY migrator.batch.endpoint, migrator.batch.source;

SELECT migrator.batch.endpoint, sum(migrator.batch.size) AS sum_1
FROM migrator.batch
WHERE migrator.batch.handed_over_at >= :handed_over_at_1 OR migrator.batch.dispatched_at >= :dispatched_at_1 GROUP BY migrator.batch.endpoint;

SELECT migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1;

SELECT migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.source = :source_1 AND migrator.batch.state = :state_1;

SELECT migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.last_due >= :last_due_1 AND migrator.batch.handed_over_at >= :handed_over_at_1;

SELECT migrator.batch.id, migrator.batch.lane, migrator.run.options
FROM migrator.batch JOIN migrator.run ON migrator.run.id = migrator.batch.run_id
WHERE migrator.batch.state IN (:state_1) AND migrator.batch.lane < :lane_1 ORDER BY migrator.batch.id;

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch
WHERE migrator.batch.destination IS NOT NULL AND migrator.batch.state = :state_1 ORDER BY migrator.batch.id;

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch
WHERE migrator.batch.id = :id_1;

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch
WHERE migrator.batch.lane = :lane_1 AND migrator.batch.state = :state_1 AND migrator.batch.run_id IN (:run_id_1) AND migrator.batch.id <= :id_1 AND (SELECT TOP :param_1 migrator.timeout.id
FROM migrator.timeout
WHERE migrator.timeout.batch_id = migrator.batch.id) IS NULL ORDER BY migrator.batch.id;

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch
WHERE migrator.batch.lane = :lane_1 AND migrator.batch.state IN (:state_1) ORDER BY migrator.batch.id;

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch
WHERE migrator.batch.state = :state_1 ORDER BY migrator.batch.doubtful_at, migrator.batch.id;

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch WITH (UPDLOCK, ROWLOCK)
WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1;

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch WITH (UPDLOCK, ROWLOCK)
WHERE migrator.batch.id = :id_1 AND migrator.batch.state IN (:state_1);

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch WITH (UPDLOCK, ROWLOCK)
WHERE migrator.batch.lane IN (:lane_1) AND migrator.batch.state = :state_1 AND migrator.batch.lease_token = :lease_token_1 ORDER BY migrator.batch.id;

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch WITH (UPDLOCK, ROWLOCK)
WHERE migrator.batch.state = :state_1 AND migrator.batch.source = :source_1 AND migrator.batch.mode != :mode_1 AND migrator.batch.run_id = :run_id_1 AND migrator.batch.destination IN (:destination_1) AND migrator.batch.size < :size_1 AND migrator.batch.body_bytes < :body_bytes_1 ORDER BY migrator.batch.id;

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.endpoint, migrator.batch.source, migrator.batch.lane, migrator.batch.mode, migrator.batch.state, migrator.batch.attempt, migrator.batch.size, migrator.batch.purged, migrator.batch.body_bytes, migrator.batch.first_due, migrator.batch.last_due, migrator.batch.owner, migrator.batch.lease_token, migrator.batch.claiming_at, migrator.batch.claimed_at, migrator.batch.parked_at, migrator.batch.staging_at, migrator.batch.committing_at, migrator.batch.publishing_at, migrator.batch.handed_over_at, migrator.batch.dispatched_at, migrator.batch.doubtful_at, migrator.batch.releasing_at, migrator.batch.released_at, migrator.batch.ledger_id, migrator.batch.destination
FROM migrator.batch WITH (UPDLOCK, ROWLOCK)
WHERE migrator.batch.state = :state_1 AND migrator.batch.source = :source_1 AND migrator.batch.mode = :mode_1 AND migrator.batch.run_id = :run_id_1 AND migrator.batch.destination IN (:destination_1) AND migrator.batch.size < :size_1 AND migrator.batch.body_bytes < :body_bytes_1 ORDER BY migrator.batch.id;

SELECT migrator.batch.id, migrator.batch.run_id, migrator.batch.source, migrator.batch.lane, migrator.batch.state, migrator.batch.lease_token
FROM migrator.batch
WHERE migrator.batch.lane IN (:lane_1) AND migrator.batch.state IN (:state_1) ORDER BY migrator.batch.lane, migrator.batch.id;

SELECT migrator.batch.id, migrator.batch.size, migrator.batch.first_due, migrator.batch.last_due
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND CASE WHEN (migrator.batch.last_due <= :last_due_1 OR migrator.batch.first_due >= :first_due_1) THEN 1 ELSE 0 END = :param_1 ORDER BY migrator.batch.id DESC;

SELECT migrator.batch.id, migrator.batch.size, migrator.batch.first_due, migrator.batch.last_due
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.run_id = :run_id_1 AND CASE WHEN (migrator.batch.last_due <= :last_due_1 OR migrator.batch.first_due >= :first_due_1) THEN 1 ELSE 0 END = :param_1 ORDER BY migrator.batch.id DESC;

SELECT migrator.batch.id, migrator.batch.size, migrator.batch.first_due, migrator.batch.last_due
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.run_id = :run_id_1 ORDER BY migrator.batch.id DESC;

SELECT migrator.batch.id, migrator.batch.size, migrator.batch.first_due, migrator.batch.last_due
FROM migrator.batch
WHERE migrator.batch.state = :state_1 ORDER BY migrator.batch.id DESC;

SELECT migrator.batch.lane, migrator.run.options, count(*) AS count_1, min(migrator.batch.id) AS min_1
FROM migrator.batch JOIN migrator.run ON migrator.run.id = migrator.batch.run_id
WHERE migrator.batch.state IN (:state_1) GROUP BY migrator.batch.lane, migrator.run.options;

SELECT migrator.batch.size, migrator.batch.body_bytes
FROM migrator.batch WITH (UPDLOCK, ROWLOCK)
WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1 AND migrator.batch.lease_token = :lease_token_1;

SELECT migrator.batch.source, max(migrator.batch.endpoint) AS max_1
FROM migrator.batch GROUP BY migrator.batch.source;

SELECT migrator.batch.state, count(*) AS count_1
FROM migrator.batch
WHERE migrator.batch.state IN (:state_1) GROUP BY migrator.batch.state;

SELECT migrator.batch.state, migrator.batch.lane, migrator.batch.lease_token
FROM migrator.batch
WHERE migrator.batch.id = :id_1;

SELECT migrator.event.detail
FROM migrator.event
WHERE migrator.event.kind IN (:kind_1) ORDER BY migrator.event.id DESC;

SELECT migrator.event.id, migrator.event.at, migrator.event.kind, migrator.event.batch_id, migrator.event.endpoint, migrator.event.actor, migrator.event.detail
FROM migrator.event
WHERE migrator.event.id IN (SELECT max(migrator.event.id) AS max_1
FROM migrator.event
WHERE migrator.event.kind = :kind_1 AND migrator.event.endpoint IN (:endpoint_1) GROUP BY migrator.event.endpoint);

SELECT migrator.held_destination.source, migrator.held_destination.destination, migrator.held_destination.endpoint, migrator.held_destination.reason, migrator.held_destination.detail, migrator.held_destination.tries, migrator.held_destination.since, migrator.held_destination.next_try_at
FROM migrator.held_destination;

SELECT migrator.held_destination.source, migrator.held_destination.destination, migrator.held_destination.endpoint, migrator.held_destination.reason, migrator.held_destination.detail, migrator.held_destination.tries, migrator.held_destination.since, migrator.held_destination.next_try_at
FROM migrator.held_destination
WHERE migrator.held_destination.source = :source_1 ORDER BY migrator.held_destination.destination;

SELECT migrator.lease.name
FROM migrator.lease;

SELECT migrator.lease.name
FROM migrator.lease
WHERE migrator.lease.name = :name_1;

SELECT migrator.lease.name
FROM migrator.lease
WHERE migrator.lease.serves = :serves_1;

SELECT migrator.lease.name
FROM migrator.lease WITH (UPDLOCK, ROWLOCK);

SELECT migrator.lease.name
FROM migrator.lease WITH (UPDLOCK, ROWLOCK)
WHERE migrator.lease.name = :name_1;

SELECT migrator.lease.name, migrator.lease.owner
FROM migrator.lease
WHERE migrator.lease.owner IS NOT NULL AND migrator.lease.until > SYSUTCDATETIME();

SELECT migrator.lease.name, migrator.lease.owner, migrator.lease.serves
FROM migrator.lease
WHERE migrator.lease.owner IS NOT NULL AND migrator.lease.until > SYSUTCDATETIME() ORDER BY migrator.lease.name;

SELECT migrator.lease.name, migrator.lease.owner, migrator.lease.token, SYSUTCDATETIME() AS now, CASE WHEN (migrator.lease.owner IS NOT NULL AND migrator.lease.until > SYSUTCDATETIME()) THEN 1 ELSE 0 END AS is_alive
FROM migrator.lease
WHERE migrator.lease.name = :name_1;

SELECT migrator.lease.name, migrator.lease.owner, migrator.lease.token, migrator.lease.until, migrator.lease.doing, migrator.lease.renewed_at, migrator.lease.serves, migrator.lease.position
FROM migrator.lease;

SELECT migrator.lease.owner
FROM migrator.lease
WHERE migrator.lease.name = :name_1 AND migrator.lease.owner IS NOT NULL AND migrator.lease.until > SYSUTCDATETIME();

SELECT migrator.lease.owner, CASE WHEN (migrator.lease.until > SYSUTCDATETIME()) THEN 1 ELSE 0 END AS is_alive
FROM migrator.lease
WHERE migrator.lease.name = :name_1;

SELECT migrator.lease.position
FROM migrator.lease
WHERE migrator.lease.position IS NOT NULL;

SELECT migrator.lease.token
FROM migrator.lease
WHERE migrator.lease.name = :name_1;

SELECT migrator.lease.token
FROM migrator.lease WITH (UPDLOCK, ROWLOCK)
WHERE migrator.lease.name = :name_1 AND migrator.lease.token = :token_1;

SELECT migrator.ledger.id
FROM migrator.ledger;

SELECT migrator.ledger.id, migrator.ledger.[identity], migrator.ledger.created_at
FROM migrator.ledger;

SELECT migrator.progress.endpoint, migrator.progress.state, migrator.progress.rows
FROM migrator.progress;

SELECT migrator.run.endpoint, migrator.run.source, migrator.run.options
FROM migrator.run
WHERE migrator.run.id IN (SELECT max(migrator.run.id) AS max_1
FROM migrator.run GROUP BY migrator.run.endpoint);

SELECT migrator.run.id, migrator.run.options
FROM migrator.run
WHERE migrator.run.options LIKE :options_1;

SELECT migrator.run.options
FROM migrator.run
WHERE migrator.run.id = :id_1;

SELECT migrator.run.source, migrator.run.endpoint
FROM migrator.run
WHERE migrator.run.id IN (SELECT max(migrator.run.id) AS max_1
FROM migrator.run GROUP BY migrator.run.source);

SELECT migrator.timeout.batch_id, migrator.batch.endpoint, migrator.batch.source, migrator.timeout.going_back, count(*) AS rows
FROM migrator.timeout JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.timeout.going_back IS NOT NULL AND migrator.timeout.batch_id = :batch_id_1 GROUP BY migrator.timeout.batch_id, migrator.batch.endpoint, migrator.batch.source, migrator.timeout.going_back ORDER BY migrator.timeout.batch_id, migrator.timeout.going_back;

SELECT migrator.timeout.batch_id, migrator.batch.endpoint, migrator.batch.source, migrator.timeout.going_back, count(*) AS rows
FROM migrator.timeout JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.timeout.going_back IS NOT NULL GROUP BY migrator.timeout.batch_id, migrator.batch.endpoint, migrator.batch.source, migrator.timeout.going_back ORDER BY migrator.timeout.batch_id, migrator.timeout.going_back;

SELECT migrator.timeout.destination, count(*) AS count_1, min(migrator.timeout.due) AS min_1, max(migrator.timeout.due) AS max_1
FROM migrator.timeout
WHERE migrator.timeout.state IS NULL AND migrator.timeout.due >= :due_1 AND migrator.timeout.destination IS NOT NULL AND migrator.timeout.batch_id IN (:batch_id_1) GROUP BY migrator.timeout.destination;

SELECT migrator.timeout.destination, count(*) AS count_1, min(migrator.timeout.due) AS min_1, max(migrator.timeout.due) AS max_1
FROM migrator.timeout
WHERE migrator.timeout.state IS NULL AND migrator.timeout.due >= :due_1 AND migrator.timeout.destination IS NOT NULL AND migrator.timeout.batch_id IN (SELECT migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.last_due >= :last_due_1 AND (migrator.batch.run_id NOT IN (:run_id_1))) GROUP BY migrator.timeout.destination;

SELECT migrator.timeout.destination, count(*) AS count_1, min(migrator.timeout.due) AS min_1, max(migrator.timeout.due) AS max_1
FROM migrator.timeout
WHERE migrator.timeout.state IS NULL AND migrator.timeout.due >= :due_1 AND migrator.timeout.destination IS NOT NULL AND migrator.timeout.batch_id IN (SELECT migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.last_due >= :last_due_1 AND migrator.batch.run_id IN (:run_id_1)) GROUP BY migrator.timeout.destination;

SELECT migrator.timeout.destination, count(*) AS count_1, min(migrator.timeout.due) AS min_1, max(migrator.timeout.due) AS max_1
FROM migrator.timeout
WHERE migrator.timeout.state IS NULL AND migrator.timeout.due >= :due_1 AND migrator.timeout.destination IS NOT NULL AND migrator.timeout.batch_id IN (SELECT migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.last_due >= :last_due_1) GROUP BY migrator.timeout.destination;

SELECT migrator.timeout.destination, count(*) AS count_1, min(migrator.timeout.due) AS min_1, max(migrator.timeout.due) AS max_1
FROM migrator.timeout
WHERE migrator.timeout.state IS NULL AND migrator.timeout.due >= :due_1 AND migrator.timeout.destination IS NOT NULL AND migrator.timeout.due < :due_2 AND migrator.timeout.batch_id IN (SELECT migrator.batch.id
FROM migrator.batch
WHERE migrator.batch.state = :state_1 AND migrator.batch.last_due >= :last_due_1 AND migrator.batch.first_due < :first_due_1) GROUP BY migrator.timeout.destination;

SELECT migrator.timeout.endpoint, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END AS destination, count(CASE WHEN (migrator.timeout.state IS NULL AND migrator.batch.state = :state_1 AND migrator.timeout.due > :due_1) THEN :param_1 END) AS waiting, count(CASE WHEN (migrator.timeout.state IS NULL AND migrator.batch.state = :state_1 AND migrator.timeout.due <= :due_2) THEN :param_2 END) AS [left], count(CASE WHEN (migrator.timeout.state = :state_2) THEN :param_3 END) AS quarantined
FROM migrator.timeout LEFT OUTER JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id
WHERE migrator.timeout.state IS NULL AND migrator.batch.state = :state_1 OR migrator.timeout.state = :state_2 GROUP BY migrator.timeout.endpoint, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END;

SELECT migrator.timeout.endpoint, migrator.timeout.reason, count(*) AS count_1
FROM migrator.timeout
WHERE migrator.timeout.state = :state_1 GROUP BY migrator.timeout.endpoint, migrator.timeout.reason ORDER BY migrator.timeout.endpoint, migrator.timeout.reason;

SELECT migrator.timeout.endpoint, migrator.timeout.source, coalesce(migrator.timeout.state, migrator.batch.state, 'doubtful') AS coalesce_1, count(*) AS count_1
FROM migrator.timeout LEFT OUTER JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id GROUP BY migrator.timeout.endpoint, migrator.timeout.source, coalesce(migrator.timeout.state, migrator.batch.state, 'doubtful');

SELECT migrator.timeout.id
FROM migrator.timeout
WHERE migrator.timeout.id = :id_1 AND migrator.timeout.going_back = :going_back_1;

SELECT migrator.timeout.id, migrator.timeout.batch_id AS batch, migrator.timeout.row_index, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id AS timeout_id, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END AS destination, migrator.timeout.due AS due_at, coalesce(migrator.timeout.state, migrator.batch.state, 'doubtful') AS state, CASE WHEN (migrator.timeout.state = :state_1) THEN migrator.timeout.reason END AS reason, migrator.timeout.content_hash, migrator.batch.claimed_at, CASE WHEN (migrator.timeout.state IS NULL AND migrator.batch.state = :state_2) THEN migrator.batch.handed_over_at END AS handed_over_at, both.total
FROM migrator.timeout LEFT OUTER JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id JOIN (SELECT TOP :param_1 found.id AS id, count(*) OVER () AS total
FROM (SELECT (SELECT TOP :param_2 known.id
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND known.endpoint IN (:endpoint_1)) AS id
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1) AS found
WHERE found.id IS NOT NULL ORDER BY found.id) AS both ON migrator.timeout.id = both.id ORDER BY migrator.timeout.id;

SELECT migrator.timeout.id, migrator.timeout.batch_id AS batch, migrator.timeout.row_index, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id AS timeout_id, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END AS destination, migrator.timeout.due AS due_at, coalesce(migrator.timeout.state, migrator.batch.state, 'doubtful') AS state, CASE WHEN (migrator.timeout.state = :state_1) THEN migrator.timeout.reason END AS reason, migrator.timeout.content_hash, migrator.batch.claimed_at, CASE WHEN (migrator.timeout.state IS NULL AND migrator.batch.state = :state_2) THEN migrator.batch.handed_over_at END AS handed_over_at, both.total
FROM migrator.timeout LEFT OUTER JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id JOIN (SELECT TOP :param_1 found.id AS id, count(*) OVER () AS total
FROM (SELECT (SELECT TOP :param_2 known.id
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST([public].timeoutentity.id AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) AS id
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1) AS found
WHERE found.id IS NOT NULL ORDER BY found.id) AS both ON migrator.timeout.id = both.id ORDER BY migrator.timeout.id;

SELECT migrator.timeout.id, migrator.timeout.batch_id AS batch, migrator.timeout.row_index, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id AS timeout_id, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END AS destination, migrator.timeout.due AS due_at, coalesce(migrator.timeout.state, migrator.batch.state, 'doubtful') AS state, CASE WHEN (migrator.timeout.state = :state_1) THEN migrator.timeout.reason END AS reason, migrator.timeout.content_hash, migrator.batch.claimed_at, CASE WHEN (migrator.timeout.state IS NULL AND migrator.batch.state = :state_2) THEN migrator.batch.handed_over_at END AS handed_over_at, both.total
FROM migrator.timeout LEFT OUTER JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id JOIN (SELECT TOP :param_1 found.id AS id, count(*) OVER () AS total
FROM (SELECT (SELECT TOP :param_2 known.id
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND known.endpoint IN (:endpoint_1)) AS id
FROM timeouts) AS found
WHERE found.id IS NOT NULL ORDER BY found.id) AS both ON migrator.timeout.id = both.id ORDER BY migrator.timeout.id;

SELECT migrator.timeout.id, migrator.timeout.batch_id AS batch, migrator.timeout.row_index, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id AS timeout_id, CASE WHEN (migrator.timeout.reason = 'unprocessable') THEN migrator.timeout.destination ELSE migrator.timeout.destination END AS destination, migrator.timeout.due AS due_at, coalesce(migrator.timeout.state, migrator.batch.state, 'doubtful') AS state, CASE WHEN (migrator.timeout.state = :state_1) THEN migrator.timeout.reason END AS reason, migrator.timeout.content_hash, migrator.batch.claimed_at, CASE WHEN (migrator.timeout.state IS NULL AND migrator.batch.state = :state_2) THEN migrator.batch.handed_over_at END AS handed_over_at, both.total
FROM migrator.timeout LEFT OUTER JOIN migrator.batch ON migrator.batch.id = migrator.timeout.batch_id JOIN (SELECT TOP :param_1 found.id AS id, count(*) OVER () AS total
FROM (SELECT (SELECT TOP :param_2 known.id
FROM migrator.timeout AS known
WHERE known.source = :source_1 AND known.store_id = lower(CAST(timeouts.[Id] AS CHAR(36))) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched')) AS id
FROM timeouts) AS found
WHERE found.id IS NOT NULL ORDER BY found.id) AS both ON migrator.timeout.id = both.id ORDER BY migrator.timeout.id;

SELECT migrator.timeout.id, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id, migrator.timeout.destination, migrator.timeout.saga_id, migrator.timeout.due, migrator.timeout.body, migrator.timeout.headers, migrator.timeout.store_version, migrator.timeout.store_extra, (SELECT migrator.batch.ledger_id
FROM migrator.batch
WHERE migrator.batch.id = migrator.timeout.batch_id) AS ledger_id
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1) ORDER BY migrator.timeout.row_index;

SELECT migrator.timeout.id, migrator.timeout.endpoint, migrator.timeout.source, migrator.timeout.store_id, migrator.timeout.destination, migrator.timeout.saga_id, migrator.timeout.due, migrator.timeout.body, migrator.timeout.headers, migrator.timeout.store_version, migrator.timeout.store_extra, (SELECT migrator.batch.ledger_id
FROM migrator.batch
WHERE migrator.batch.id = migrator.timeout.batch_id) AS ledger_id
FROM migrator.timeout
WHERE migrator.timeout.id IN (:id_1);

SELECT migrator.timeout.id, migrator.timeout.row_index, migrator.timeout.due, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.state IS NULL AND migrator.timeout.row_index IN (:row_index_1) ORDER BY migrator.timeout.due, migrator.timeout.row_index;

SELECT migrator.timeout.id, migrator.timeout.row_index, migrator.timeout.due, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.state IS NULL ORDER BY migrator.timeout.due, migrator.timeout.row_index;

SELECT migrator.timeout.id, migrator.timeout.store_id
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1) ORDER BY migrator.timeout.id;

SELECT migrator.timeout.id, migrator.timeout.store_id
FROM migrator.timeout
WHERE migrator.timeout.id IN (:id_1) ORDER BY migrator.timeout.id;

SELECT migrator.timeout.id, migrator.timeout.store_id, migrator.timeout.due, coalesce(DATALENGTH(migrator.timeout.body), 0) AS body_bytes
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1;

SELECT migrator.timeout.row_index, migrator.timeout.store_id
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.state IS NULL ORDER BY migrator.timeout.row_index;

SELECT migrator.timeout.row_index, migrator.timeout.store_id, migrator.timeout.destination, migrator.timeout.due, migrator.timeout.body, migrator.timeout.headers
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.state IS NULL AND migrator.timeout.row_index IN (:row_index_1) ORDER BY migrator.timeout.row_index;

SELECT migrator.timeout.row_index, migrator.timeout.store_id, migrator.timeout.destination, migrator.timeout.due, migrator.timeout.body, migrator.timeout.headers
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.state IS NULL ORDER BY migrator.timeout.row_index;

SELECT migrator.timeout.store_id
FROM migrator.timeout
WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.going_back = :going_back_1 ORDER BY migrator.timeout.row_index;

SELECT migrator.timeout.store_id
FROM migrator.timeout
WHERE migrator.timeout.source = :source_1 AND migrator.timeout.store_id IN (:store_id_1) AND coalesce(migrator.timeout.state, '') IN ('', 'quarantined', 'dispatched');

SELECT min([public].nsb_timeouts.owner) AS min_1
FROM [public].nsb_timeouts;

SELECT min([public].nsb_timeouts.owner) AS min_1
FROM [public].nsb_timeouts
WHERE [public].nsb_timeouts.owner > :Endpoint_1;

SELECT min([public].timeoutentity.endpoint) AS min_1
FROM [public].timeoutentity;

SELECT min([public].timeoutentity.endpoint) AS min_1
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint > :Endpoint_1;

SELECT min(migrator.batch.claimed_at) AS min_1
FROM migrator.batch
WHERE migrator.batch.state IN (:state_1);

SELECT min(migrator.lease.until) AS ends_at, SYSUTCDATETIME() AS now
FROM migrator.lease
WHERE migrator.lease.owner IS NOT NULL AND migrator.lease.until > SYSUTCDATETIME();

SELECT moments.at, count(*) AS found
FROM (SELECT CONVERT(char(16), [public].timeoutentity.time, 120) AS at
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time > :Time_1 AND [public].timeoutentity.time <= :Time_2) AS moments GROUP BY moments.at
HAVING count(*) >= :count_1;

SELECT moments.at, count(*) AS found
FROM (SELECT CONVERT(char(16), timeouts.[Time], 120) AS at
FROM timeouts
WHERE timeouts.[Time] > :Time_1 AND timeouts.[Time] <= :Time_2) AS moments GROUP BY moments.at
HAVING count(*) >= :count_1;

SELECT moments.at, count(*) AS found
FROM (SELECT CONVERT(char(19), [public].timeoutentity.time, 120) AS at
FROM [public].timeoutentity
WHERE [public].timeoutentity.endpoint = :Endpoint_1 AND [public].timeoutentity.time > :Time_1 AND [public].timeoutentity.time <= :Time_2) AS moments GROUP BY moments.at
HAVING count(*) >= :count_1;

SELECT moments.at, count(*) AS found
FROM (SELECT CONVERT(char(19), timeouts.[Time], 120) AS at
FROM timeouts
WHERE timeouts.[Time] > :Time_1 AND timeouts.[Time] <= :Time_2) AS moments GROUP BY moments.at
HAVING count(*) >= :count_1;

SELECT sum(migrator.batch.size) AS sum_1
FROM migrator.batch
WHERE migrator.batch.source = :source_1 AND migrator.batch.state IN (:state_1);

SELECT timeouts.[Id]
FROM timeouts
WHERE 1 = 0;

SELECT version_num
FROM migrator.alembic_version;

UPDATE migrator.batch SET lane=:lane, lease_token=:lease_token WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1 AND migrator.batch.lease_token = :lease_token_1;

UPDATE migrator.batch SET lane=:lane, owner=:owner, lease_token=:lease_token WHERE migrator.batch.id IN (:id_1);

UPDATE migrator.batch SET ledger_id=:ledger_id WHERE migrator.batch.claiming_at IS NOT NULL AND migrator.batch.ledger_id IS NULL;

UPDATE migrator.batch SET mode=:mode WHERE migrator.batch.destination IS NOT NULL AND migrator.batch.source IN (:source_1) AND migrator.batch.mode = :mode_1 AND migrator.batch.state = :state_1;

UPDATE migrator.batch SET owner=:owner, lease_token=:lease_token WHERE migrator.batch.lane = :lane_1 AND migrator.batch.state IN (:state_1) AND migrator.batch.lease_token != :lease_token_1;

UPDATE migrator.batch SET owner=:owner, lease_token=:lease_token WHERE migrator.batch.state IN (:state_1);

UPDATE migrator.batch SET run_id=:run_id WHERE migrator.batch.source = :source_1 AND migrator.batch.state = :state_1 AND migrator.batch.lease_token = :lease_token_1 AND migrator.batch.owner IS NULL;

UPDATE migrator.batch SET run_id=:run_id, lane=:lane, mode=:mode, state=:state, attempt=:attempt, owner=:owner, lease_token=:lease_token, claimed_at=SYSUTCDATETIME(), destination=:destination WHERE migrator.batch.id = :id_1;

UPDATE migrator.batch SET run_id=:run_id, lane=:lane, state=:state, attempt=:attempt, owner=:owner, lease_token=:lease_token WHERE migrator.batch.id = :id_1;

UPDATE migrator.batch SET run_id=:run_id, lane=:lane, state=:state, attempt=:attempt, owner=:owner, lease_token=:lease_token, claimed_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1;

UPDATE migrator.batch SET size=(migrator.batch.size - :fewer), purged=(migrator.batch.purged + :more) WHERE migrator.batch.id = :of_batch;

UPDATE migrator.batch SET size=(migrator.batch.size - :size_1), body_bytes=(migrator.batch.body_bytes - :body_bytes_1) WHERE migrator.batch.id = :id_1;

UPDATE migrator.batch SET size=:size, body_bytes=:body_bytes WHERE migrator.batch.id = :id_1;

UPDATE migrator.batch SET size=:size, body_bytes=:body_bytes, first_due=:first_due, last_due=:last_due WHERE migrator.batch.id = :id_1;

UPDATE migrator.batch SET size=:size, purged=:purged, body_bytes=:body_bytes, first_due=:first_due, last_due=:last_due, dispatched_at=:dispatched_at WHERE migrator.batch.id = :id_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, claimed_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1 AND migrator.batch.lease_token = :lease_token_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, committing_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1 AND migrator.batch.lease_token = :lease_token_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, dispatched_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1 AND migrator.batch.lease_token = :lease_token_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, doubtful_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1 AND migrator.batch.lease_token = :lease_token_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, handed_over_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1 AND migrator.batch.lease_token = :lease_token_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, owner=:owner, lease_token=:lease_token, handed_over_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, publishing_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1 AND migrator.batch.lease_token = :lease_token_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, released_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, released_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1 AND migrator.batch.lease_token = :lease_token_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, releasing_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1;

UPDATE migrator.batch SET state=:state, attempt=:attempt, staging_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1 AND migrator.batch.state = :state_1 AND migrator.batch.attempt = :attempt_1 AND migrator.batch.lease_token = :lease_token_1;

UPDATE migrator.batch SET state=:state, doubtful_at=SYSUTCDATETIME() WHERE migrator.batch.state IN (:state_1);

UPDATE migrator.batch SET state=:state, size=:size, body_bytes=:body_bytes, first_due=:first_due, last_due=:last_due, claimed_at=SYSUTCDATETIME() WHERE migrator.batch.id = :id_1;

UPDATE migrator.held_destination SET endpoint=:endpoint, reason=:reason, detail=:detail, tries=:tries, since=:since, next_try_at=:next_try_at WHERE migrator.held_destination.source = :source_1 AND migrator.held_destination.destination = :destination_1;

UPDATE migrator.lease SET owner=:owner, token=(migrator.lease.token + :token_1), until=SYSUTCDATETIME(), doing=:doing;

UPDATE migrator.lease SET owner=:owner, token=(migrator.lease.token + :token_1), until=SYSUTCDATETIME(), doing=:doing WHERE migrator.lease.name = :name_1 AND migrator.lease.owner = :owner_1;

UPDATE migrator.lease SET owner=:owner, token=(migrator.lease.token + :token_1), until=SYSUTCDATETIME(), doing=:doing WHERE migrator.lease.name = :name_1 AND migrator.lease.token = :token_2;

UPDATE migrator.lease SET owner=:owner, token=:token, until=:until, doing=:doing, renewed_at=:renewed_at WHERE migrator.lease.name = :name_1;

UPDATE migrator.lease SET position=:position;

UPDATE migrator.lease SET until=:until, doing=:doing, renewed_at=:renewed_at WHERE migrator.lease.name = :name_1 AND migrator.lease.token = :token_1;

UPDATE migrator.ledger SET [identity]=:identity;

UPDATE migrator.ledger SET id=:id, [identity]=:identity;

UPDATE migrator.timeout SET batch_id=:batch_id, row_index=:row_index, state=:state, reason=:reason, reason_detail=:reason_detail WHERE migrator.timeout.id = :id_1;

UPDATE migrator.timeout SET going_back=:going_back WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.going_back = :going_back_1;

UPDATE migrator.timeout SET going_back=:going_back WHERE migrator.timeout.id IN (:id_1);

UPDATE migrator.timeout SET going_back=:going_back WHERE migrator.timeout.id IN (:id_1) AND migrator.timeout.going_back = :going_back_1;

UPDATE migrator.timeout SET state=:state, going_back=:going_back WHERE migrator.timeout.id IN (:id_1);

UPDATE migrator.timeout SET state=:state, going_back=:going_back WHERE migrator.timeout.id IN (:id_1) AND migrator.timeout.going_back = :going_back_1;

UPDATE migrator.timeout SET state=:state, reason=:reason, reason_detail=:reason_detail, going_back=:going_back WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.going_back = :going_back_1;

UPDATE migrator.timeout SET state=:state, reason=:reason, reason_detail=:reason_detail, going_back=:going_back WHERE migrator.timeout.id IN (:id_1);

UPDATE migrator.timeout SET state=:state, reason=:reason, reason_detail=:reason_detail, going_back=:going_back WHERE migrator.timeout.id IN (:id_1) AND migrator.timeout.going_back = :going_back_1;

UPDATE migrator.timeout WITH (ROWLOCK) SET batch_id=:batch_id, row_index=:at WHERE migrator.timeout.id = :of_row;

UPDATE migrator.timeout WITH (ROWLOCK) SET state=:state WHERE migrator.timeout.batch_id = :batch_id_1;

UPDATE migrator.timeout WITH (ROWLOCK) SET state=:state WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1);

UPDATE migrator.timeout WITH (ROWLOCK) SET state=:state WHERE migrator.timeout.batch_id = :batch_id_1 AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1) AND (migrator.timeout.id NOT IN (:id_1));

UPDATE migrator.timeout WITH (ROWLOCK) SET state=:state WHERE migrator.timeout.batch_id IS NULL;

UPDATE migrator.timeout WITH (ROWLOCK) SET state=:state WHERE migrator.timeout.id IN (:id_1);

UPDATE migrator.timeout WITH (ROWLOCK) SET state=:state, reason=:reason, reason_detail=:reason_detail WHERE migrator.timeout.batch_id = :batch_id_1 AND migrator.timeout.row_index IN (:row_index_1) AND (migrator.timeout.state IS NULL OR migrator.timeout.state = :state_1);

UPDATE migrator.timeout WITH (ROWLOCK) SET state=:state, reason=:reason, reason_detail=:reason_detail WHERE migrator.timeout.id IN (:id_1);

WITH kept AS
(SELECT migrator.timeout.batch_id AS batch_id, count(*) AS rows
FROM migrator.timeout GROUP BY migrator.timeout.batch_id)
 SELECT TOP :param_1 gap.batch, gap.endpoint, gap.state, gap.size, gap.purged, gap.rows, count(*) OVER () AS total
FROM (SELECT migrator.batch.id AS batch, migrator.batch.endpoint AS endpoint, migrator.batch.state AS state, migrator.batch.size AS size, migrator.batch.purged AS purged, coalesce(kept.rows, :coalesce_1) AS rows
FROM migrator.batch LEFT OUTER JOIN kept ON kept.batch_id = migrator.batch.id
WHERE migrator.batch.size - migrator.batch.purged != coalesce(kept.rows, :coalesce_1) UNION ALL SELECT kept.batch_id AS batch_id, (SELECT min(migrator.timeout.endpoint) AS min_1
FROM migrator.timeout
WHERE migrator.timeout.batch_id = kept.batch_id) AS anon_1, 'doubtful', 0, 0, kept.rows AS rows
FROM kept LEFT OUTER JOIN migrator.batch ON migrator.batch.id = kept.batch_id
WHERE migrator.batch.id IS NULL) AS gap
WHERE gap.endpoint IN (:endpoint_1) ORDER BY gap.batch;

WITH kept AS
(SELECT migrator.timeout.batch_id AS batch_id, count(*) AS rows
FROM migrator.timeout GROUP BY migrator.timeout.batch_id)
 SELECT TOP :param_1 gap.batch, gap.endpoint, gap.state, gap.size, gap.purged, gap.rows, count(*) OVER () AS total
FROM (SELECT migrator.batch.id AS batch, migrator.batch.endpoint AS endpoint, migrator.batch.state AS state, migrator.batch.size AS size, migrator.batch.purged AS purged, coalesce(kept.rows, :coalesce_1) AS rows
FROM migrator.batch LEFT OUTER JOIN kept ON kept.batch_id = migrator.batch.id
WHERE migrator.batch.size - migrator.batch.purged != coalesce(kept.rows, :coalesce_1) UNION ALL SELECT kept.batch_id AS batch_id, (SELECT min(migrator.timeout.endpoint) AS min_1
FROM migrator.timeout
WHERE migrator.timeout.batch_id = kept.batch_id) AS anon_1, 'doubtful', 0, 0, kept.rows AS rows
FROM kept LEFT OUTER JOIN migrator.batch ON migrator.batch.id = kept.batch_id
WHERE migrator.batch.id IS NULL) AS gap ORDER BY gap.batch;

