CREATE TABLE migrator_alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT migrator_alembic_version_pkc PRIMARY KEY (version_num)
);

-- Running upgrade  -> 0001

CREATE TABLE migrator_ledger (
    id VARCHAR(40) NOT NULL,
    identity VARCHAR(255) NOT NULL,
    created_at DATETIME(6) NOT NULL,
    PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE migrator_run (
    id BIGINT NOT NULL AUTO_INCREMENT,
    endpoint VARCHAR(255) NOT NULL,
    source VARCHAR(255) NOT NULL,
    options LONGTEXT NOT NULL,
    tool_version VARCHAR(255) NOT NULL,
    status VARCHAR(255) NOT NULL,
    begun_at DATETIME(6) NOT NULL,
    ended_at DATETIME(6),
    PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE migrator_batch (
    id BIGINT NOT NULL AUTO_INCREMENT,
    run_id BIGINT NOT NULL,
    endpoint VARCHAR(255) NOT NULL,
    source VARCHAR(255) NOT NULL,
    lane INTEGER NOT NULL,
    mode VARCHAR(255) NOT NULL,
    state VARCHAR(255) NOT NULL,
    attempt INTEGER NOT NULL,
    size INTEGER NOT NULL,
    purged INTEGER NOT NULL DEFAULT '0',
    body_bytes BIGINT NOT NULL,
    first_due DATETIME(6),
    last_due DATETIME(6),
    owner VARCHAR(255),
    lease_token BIGINT NOT NULL,
    claiming_at DATETIME(6),
    claimed_at DATETIME(6),
    staging_at DATETIME(6),
    staged_at DATETIME(6),
    committing_at DATETIME(6),
    publishing_at DATETIME(6),
    handed_over_at DATETIME(6),
    dispatched_at DATETIME(6),
    doubtful_at DATETIME(6),
    releasing_at DATETIME(6),
    released_at DATETIME(6),
    recalled_at DATETIME(6),
    ledger_id VARCHAR(255),
    PRIMARY KEY (id),
    FOREIGN KEY(run_id) REFERENCES migrator_run (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX migrator_batch_lane_state ON migrator_batch (lane, state);

CREATE INDEX migrator_batch_run ON migrator_batch (run_id);

CREATE TABLE migrator_timeout (
    id BIGINT NOT NULL AUTO_INCREMENT,
    source VARCHAR(255) NOT NULL,
    endpoint VARCHAR(255) NOT NULL,
    store_id VARCHAR(500) NOT NULL,
    batch_id BIGINT NOT NULL,
    row_index INTEGER NOT NULL,
    destination LONGTEXT,
    saga_id LONGTEXT,
    due DATETIME(6) NOT NULL,
    body LONGBLOB,
    headers LONGTEXT,
    persistence_version LONGTEXT,
    content_hash VARCHAR(255) NOT NULL,
    state VARCHAR(255),
    reason VARCHAR(255),
    reason_detail LONGTEXT,
    store_version LONGTEXT,
    store_extra LONGTEXT,
    going_back LONGTEXT,
    open_store_id VARCHAR(500) GENERATED ALWAYS AS (case when state IS NULL OR state IN ('quarantined', 'dispatched') then store_id end) STORED,
    PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE UNIQUE INDEX migrator_timeout_open ON migrator_timeout (source, open_store_id);

CREATE INDEX migrator_timeout_batch ON migrator_timeout (batch_id, row_index);

CREATE INDEX migrator_timeout_state ON migrator_timeout (state, id);

CREATE TABLE migrator_lease (
    name VARCHAR(100) NOT NULL,
    owner VARCHAR(255),
    token BIGINT NOT NULL,
    until DATETIME(6) NOT NULL,
    doing LONGTEXT,
    renewed_at DATETIME(6) NOT NULL,
    serves VARCHAR(255),
    position VARCHAR(255),
    PRIMARY KEY (name)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE UNIQUE INDEX migrator_lease_serves ON migrator_lease (serves);

CREATE TABLE migrator_held_destination (
    source VARCHAR(255) NOT NULL,
    destination VARCHAR(500) NOT NULL,
    endpoint VARCHAR(255) NOT NULL,
    reason VARCHAR(255) NOT NULL,
    detail LONGTEXT NOT NULL,
    tries INTEGER NOT NULL,
    since DATETIME(6) NOT NULL,
    next_try_at DATETIME(6) NOT NULL,
    PRIMARY KEY (source, destination)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE migrator_event (
    id BIGINT NOT NULL AUTO_INCREMENT,
    at DATETIME(6) NOT NULL,
    kind VARCHAR(255) NOT NULL,
    batch_id BIGINT,
    endpoint VARCHAR(255),
    actor VARCHAR(255) NOT NULL,
    detail LONGTEXT NOT NULL,
    PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX migrator_event_batch ON migrator_event (batch_id);

CREATE OR REPLACE SQL SECURITY INVOKER VIEW migrator_timeout_status AS
SELECT t.id, t.source, t.endpoint, t.store_id, coalesce(t.state, b.state) AS state, t.destination,
       t.saga_id, t.due, coalesce(length(t.body), 0) AS body_bytes, t.content_hash, t.reason,
       t.reason_detail, b.id AS batch_id, t.row_index, b.run_id, b.lane, b.mode, b.attempt,
       b.state AS batch_state, b.claimed_at, b.handed_over_at
FROM migrator_timeout t JOIN migrator_batch b ON b.id = t.batch_id;

CREATE OR REPLACE SQL SECURITY INVOKER VIEW migrator_progress AS
SELECT endpoint, state, CAST(sum(n) AS signed) AS `rows`
FROM (
    SELECT endpoint, state, sum(size) AS n FROM migrator_batch GROUP BY endpoint, state
    UNION ALL
    SELECT b.endpoint, b.state, -count(*) FROM migrator_timeout t JOIN migrator_batch b ON b.id = t.batch_id
    WHERE t.state IS NOT NULL AND t.state <> b.state GROUP BY b.endpoint, b.state
    UNION ALL
    SELECT b.endpoint, t.state, count(*) FROM migrator_timeout t JOIN migrator_batch b ON b.id = t.batch_id
    WHERE t.state IS NOT NULL AND t.state <> b.state GROUP BY b.endpoint, t.state
) counted
GROUP BY endpoint, state
HAVING sum(n) <> 0;

INSERT INTO migrator_alembic_version (version_num) VALUES ('0001');

