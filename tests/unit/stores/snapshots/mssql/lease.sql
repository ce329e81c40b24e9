SELECT migrator.lease.token 
FROM migrator.lease WITH (UPDLOCK, ROWLOCK) 
WHERE migrator.lease.name = :name_1 AND migrator.lease.token = :token_1;

SELECT migrator.lease.name 
FROM migrator.lease WITH (UPDLOCK, ROWLOCK) 
WHERE migrator.lease.name = :name_1;

UPDATE migrator.lease SET owner=:owner, until=:until, renewed_at=SYSUTCDATETIME() WHERE migrator.lease.name = :name_1;

INSERT INTO migrator.run (endpoint, source, options, tool_version, status, begun_at) OUTPUT inserted.id VALUES (:endpoint, :source, :options, :tool_version, :status, :begun_at);

