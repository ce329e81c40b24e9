SET QUOTED_IDENTIFIER ON;

GO

SET ANSI_NULLS ON;

GO

IF SCHEMA_ID(N'migrator') IS NULL EXEC(N'CREATE SCHEMA [migrator]');

GO

BEGIN TRANSACTION;

CREATE TABLE migrator.alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

GO

-- Running upgrade  -> 0001

CREATE TABLE migrator.ledger (
    id VARCHAR(40) NOT NULL,
    [identity] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    created_at DATETIME2(6) NOT NULL,
    PRIMARY KEY (id)
);

GO

CREATE TABLE migrator.run (
    id BIGINT NOT NULL IDENTITY,
    endpoint NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    source NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    options NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    tool_version NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    status NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    begun_at DATETIME2(6) NOT NULL,
    ended_at DATETIME2(6) NULL,
    PRIMARY KEY (id)
);

GO

CREATE TABLE migrator.batch (
    id BIGINT NOT NULL IDENTITY,
    run_id BIGINT NOT NULL,
    endpoint NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    source NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    lane INTEGER NOT NULL,
    mode NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    state NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    attempt INTEGER NOT NULL,
    size INTEGER NOT NULL,
    purged INTEGER NOT NULL DEFAULT '0',
    body_bytes BIGINT NOT NULL,
    first_due DATETIME2(6) NULL,
    last_due DATETIME2(6) NULL,
    owner NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    lease_token BIGINT NOT NULL,
    claiming_at DATETIME2(6) NULL,
    claimed_at DATETIME2(6) NULL,
    parked_at DATETIME2(6) NULL,
    staging_at DATETIME2(6) NULL,
    committing_at DATETIME2(6) NULL,
    publishing_at DATETIME2(6) NULL,
    handed_over_at DATETIME2(6) NULL,
    dispatched_at DATETIME2(6) NULL,
    doubtful_at DATETIME2(6) NULL,
    releasing_at DATETIME2(6) NULL,
    released_at DATETIME2(6) NULL,
    ledger_id NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    destination NVARCHAR(500) COLLATE Latin1_General_100_BIN2 NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(run_id) REFERENCES migrator.run (id)
);

GO

CREATE INDEX batch_lane_state ON migrator.batch (lane, state);

GO

CREATE INDEX batch_run ON migrator.batch (run_id);

GO

CREATE INDEX batch_destination ON migrator.batch (destination) WHERE destination IS NOT NULL;

GO

CREATE TABLE migrator.timeout (
    id BIGINT NOT NULL IDENTITY,
    source NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    endpoint NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    store_id NVARCHAR(500) COLLATE Latin1_General_100_BIN2 NOT NULL,
    batch_id BIGINT NOT NULL,
    row_index INTEGER NOT NULL,
    destination NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NULL,
    saga_id NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NULL,
    due DATETIME2(6) NOT NULL,
    body VARBINARY(max) NULL,
    headers NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NULL,
    persistence_version NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NULL,
    content_hash NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    state NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    reason NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    reason_detail NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NULL,
    store_version NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NULL,
    store_extra NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NULL,
    going_back NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NULL,
    open_store_id AS (case when state IS NULL OR state IN ('quarantined', 'dispatched') then store_id else N'#' + cast(id as nvarchar(20)) end) PERSISTED,
    PRIMARY KEY (id)
);

GO

ALTER TABLE migrator.timeout SET (LOCK_ESCALATION = DISABLE);

GO

CREATE UNIQUE INDEX timeout_open ON migrator.timeout (open_store_id, source);

GO

CREATE INDEX timeout_batch ON migrator.timeout (batch_id, row_index);

GO

CREATE INDEX timeout_state ON migrator.timeout (state, id) WHERE state IS NOT NULL;

GO

CREATE TABLE migrator.lease (
    name VARCHAR(100) NOT NULL,
    owner NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    token BIGINT NOT NULL,
    until DATETIME2(6) NOT NULL,
    doing NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NULL,
    renewed_at DATETIME2(6) NOT NULL,
    serves NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    position NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    PRIMARY KEY (name)
);

GO

CREATE UNIQUE INDEX lease_serves ON migrator.lease (serves) WHERE serves IS NOT NULL;

GO

CREATE TABLE migrator.held_destination (
    source NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    destination NVARCHAR(500) COLLATE Latin1_General_100_BIN2 NOT NULL,
    endpoint NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    reason NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    detail NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    tries INTEGER NOT NULL,
    since DATETIME2(6) NOT NULL,
    next_try_at DATETIME2(6) NOT NULL,
    PRIMARY KEY NONCLUSTERED (source, destination)
);

GO

CREATE TABLE migrator.event (
    id BIGINT NOT NULL IDENTITY,
    at DATETIME2(6) NOT NULL,
    kind NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    batch_id BIGINT NULL,
    endpoint NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    actor NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    detail NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    PRIMARY KEY (id)
);

GO

CREATE INDEX event_batch ON migrator.event (batch_id);

GO

CREATE VIEW migrator.timeout_status AS
SELECT t.id, t.source, t.endpoint, t.store_id, coalesce(t.state, b.state) AS state, t.destination,
       t.saga_id, t.due, coalesce(datalength(t.body), 0) AS body_bytes, t.content_hash, t.reason,
       t.reason_detail, b.id AS batch_id, t.row_index, b.run_id, b.lane, b.mode, b.attempt,
       b.state AS batch_state, b.claimed_at, b.handed_over_at
FROM migrator.timeout t JOIN migrator.batch b ON b.id = t.batch_id;

GO

CREATE VIEW migrator.progress AS
SELECT endpoint, state, CAST(sum(n) AS bigint) AS [rows]
FROM (
    SELECT endpoint, state, sum(size) AS n FROM migrator.batch GROUP BY endpoint, state
    UNION ALL
    SELECT b.endpoint, b.state, -count(*) FROM migrator.timeout t JOIN migrator.batch b ON b.id = t.batch_id
    WHERE t.state IS NOT NULL AND t.state <> b.state GROUP BY b.endpoint, b.state
    UNION ALL
    SELECT b.endpoint, t.state, count(*) FROM migrator.timeout t JOIN migrator.batch b ON b.id = t.batch_id
    WHERE t.state IS NOT NULL AND t.state <> b.state GROUP BY b.endpoint, t.state
) counted
GROUP BY endpoint, state
HAVING sum(n) <> 0;

GO

INSERT INTO migrator.alembic_version (version_num) OUTPUT inserted.version_num VALUES ('0001');

GO

COMMIT;

GO

