SELECT migrator_lease.token 
FROM migrator_lease 
WHERE migrator_lease.name = :name_1 AND migrator_lease.token = :token_1 FOR UPDATE OF migrator_lease.name WAIT 5;

SELECT migrator_lease.name 
FROM migrator_lease 
WHERE migrator_lease.name = :name_1 FOR UPDATE OF migrator_lease.name WAIT 5;

UPDATE migrator_lease SET owner=:owner, until=:until, renewed_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_lease.name = :name_1;

INSERT INTO migrator_run (endpoint, source, options, tool_version, status, begun_at) VALUES (:endpoint, :source, :options, :tool_version, :status, :begun_at) RETURNING migrator_run.id INTO :ret_0;

