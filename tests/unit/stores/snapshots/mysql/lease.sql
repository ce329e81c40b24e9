SELECT migrator_lease.token 
FROM migrator_lease 
WHERE migrator_lease.name = :name_1 AND migrator_lease.token = :token_1 LOCK IN SHARE MODE;

SELECT migrator_lease.name 
FROM migrator_lease 
WHERE migrator_lease.name = :name_1 FOR UPDATE;

UPDATE migrator_lease SET owner=:owner, until=:until, renewed_at=utc_timestamp(6) WHERE migrator_lease.name = :name_1;

INSERT INTO migrator_run (endpoint, source, options, tool_version, status, begun_at) VALUES (:endpoint, :source, :options, :tool_version, :status, :begun_at);

