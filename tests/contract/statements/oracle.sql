DELETE FROM "TimeoutEntity" WHERE "TimeoutEntity"."Id" IN (:Id_1) AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL;

DELETE FROM "TimeoutEntity" WHERE "TimeoutEntity"."SagaId" IN (:SagaId_1);

DELETE FROM migrator_batch WHERE migrator_batch.id = :id_1;

DELETE FROM migrator_batch WHERE migrator_batch.id IN (:id_1);

DELETE FROM migrator_held_destination WHERE migrator_held_destination.source = :source_1 AND migrator_held_destination.destination IN (:destination_1);

DELETE FROM migrator_timeout WHERE migrator_timeout.batch_id IN (:batch_id_1) AND migrator_timeout.state IS NULL RETURNING migrator_timeout.batch_id INTO :ret_0;

DELETE FROM migrator_timeout WHERE migrator_timeout.id IN (:id_1);

DELETE FROM timeouts WHERE timeouts."Id" IN (:Id_1) AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL;

DELETE FROM timeouts WHERE timeouts."SagaId" IN (:SagaId_1);

INSERT INTO "NSB_Timeouts" ("Id", "Destination", "SagaId", "State", "DueAt", "Headers", "Owner") SELECT hextoraw(substr(migrator_timeout.store_id, 7, 2) || substr(migrator_timeout.store_id, 5, 2) || substr(migrator_timeout.store_id, 3, 2) || substr(migrator_timeout.store_id, 1, 2) || substr(migrator_timeout.store_id, 12, 2) || substr(migrator_timeout.store_id, 10, 2) || substr(migrator_timeout.store_id, 17, 2) || substr(migrator_timeout.store_id, 15, 2) || substr(migrator_timeout.store_id, 20, 4) || substr(migrator_timeout.store_id, 25, 12)) AS anon_1, migrator_timeout.destination, hextoraw(substr(migrator_timeout.saga_id, 7, 2) || substr(migrator_timeout.saga_id, 5, 2) || substr(migrator_timeout.saga_id, 3, 2) || substr(migrator_timeout.saga_id, 1, 2) || substr(migrator_timeout.saga_id, 12, 2) || substr(migrator_timeout.saga_id, 10, 2) || substr(migrator_timeout.saga_id, 17, 2) || substr(migrator_timeout.saga_id, 15, 2) || substr(migrator_timeout.saga_id, 20, 4) || substr(migrator_timeout.saga_id, 25, 12)) AS anon_2, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, coalesce(CAST(migrator_timeout.store_extra AS CLOB), :param_1) AS coalesce_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1);

INSERT INTO "TimeoutEntity" ("Id", "Destination", "SagaId", "State", "Endpoint", "Time", "Headers") VALUES (:Id, :Destination, :SagaId, :State, :Endpoint, :Time, :Headers);

INSERT INTO "TimeoutEntity" ("Id", "Destination", "SagaId", "State", "Time", "Headers", "Endpoint") SELECT hextoraw(substr(migrator_timeout.store_id, 7, 2) || substr(migrator_timeout.store_id, 5, 2) || substr(migrator_timeout.store_id, 3, 2) || substr(migrator_timeout.store_id, 1, 2) || substr(migrator_timeout.store_id, 12, 2) || substr(migrator_timeout.store_id, 10, 2) || substr(migrator_timeout.store_id, 17, 2) || substr(migrator_timeout.store_id, 15, 2) || substr(migrator_timeout.store_id, 20, 4) || substr(migrator_timeout.store_id, 25, 12)) AS anon_1, migrator_timeout.destination, hextoraw(substr(migrator_timeout.saga_id, 7, 2) || substr(migrator_timeout.saga_id, 5, 2) || substr(migrator_timeout.saga_id, 3, 2) || substr(migrator_timeout.saga_id, 1, 2) || substr(migrator_timeout.saga_id, 12, 2) || substr(migrator_timeout.saga_id, 10, 2) || substr(migrator_timeout.saga_id, 17, 2) || substr(migrator_timeout.saga_id, 15, 2) || substr(migrator_timeout.saga_id, 20, 4) || substr(migrator_timeout.saga_id, 25, 12)) AS anon_2, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, coalesce(CAST(migrator_timeout.store_extra AS CLOB), :param_1) AS coalesce_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1;

INSERT INTO "TimeoutEntity" ("Id", "Destination", "SagaId", "State", "Time", "Headers", "Endpoint") SELECT hextoraw(substr(migrator_timeout.store_id, 7, 2) || substr(migrator_timeout.store_id, 5, 2) || substr(migrator_timeout.store_id, 3, 2) || substr(migrator_timeout.store_id, 1, 2) || substr(migrator_timeout.store_id, 12, 2) || substr(migrator_timeout.store_id, 10, 2) || substr(migrator_timeout.store_id, 17, 2) || substr(migrator_timeout.store_id, 15, 2) || substr(migrator_timeout.store_id, 20, 4) || substr(migrator_timeout.store_id, 25, 12)) AS anon_1, migrator_timeout.destination, hextoraw(substr(migrator_timeout.saga_id, 7, 2) || substr(migrator_timeout.saga_id, 5, 2) || substr(migrator_timeout.saga_id, 3, 2) || substr(migrator_timeout.saga_id, 1, 2) || substr(migrator_timeout.saga_id, 12, 2) || substr(migrator_timeout.saga_id, 10, 2) || substr(migrator_timeout.saga_id, 17, 2) || substr(migrator_timeout.saga_id, 15, 2) || substr(migrator_timeout.saga_id, 20, 4) || substr(migrator_timeout.saga_id, 25, 12)) AS anon_2, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, coalesce(CAST(migrator_timeout.store_extra AS CLOB), :param_1) AS coalesce_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1);

INSERT INTO "TimeoutEntity" ("Id", "Destination", "SagaId", "State", "Time", "Headers", "Endpoint") SELECT hextoraw(substr(migrator_timeout.store_id, 7, 2) || substr(migrator_timeout.store_id, 5, 2) || substr(migrator_timeout.store_id, 3, 2) || substr(migrator_timeout.store_id, 1, 2) || substr(migrator_timeout.store_id, 12, 2) || substr(migrator_timeout.store_id, 10, 2) || substr(migrator_timeout.store_id, 17, 2) || substr(migrator_timeout.store_id, 15, 2) || substr(migrator_timeout.store_id, 20, 4) || substr(migrator_timeout.store_id, 25, 12)) AS anon_1, migrator_timeout.destination, hextoraw(substr(migrator_timeout.saga_id, 7, 2) || substr(migrator_timeout.saga_id, 5, 2) || substr(migrator_timeout.saga_id, 3, 2) || substr(migrator_timeout.saga_id, 1, 2) || substr(migrator_timeout.saga_id, 12, 2) || substr(migrator_timeout.saga_id, 10, 2) || substr(migrator_timeout.saga_id, 17, 2) || substr(migrator_timeout.saga_id, 15, 2) || substr(migrator_timeout.saga_id, 20, 4) || substr(migrator_timeout.saga_id, 25, 12)) AS anon_2, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, coalesce(CAST(migrator_timeout.store_extra AS CLOB), :param_1) AS coalesce_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1) AND (migrator_timeout.id NOT IN (:id_1));

INSERT INTO "TimeoutEntity" ("Id", "Destination", "SagaId", "State", "Time", "Headers", "Endpoint") SELECT hextoraw(substr(migrator_timeout.store_id, 7, 2) || substr(migrator_timeout.store_id, 5, 2) || substr(migrator_timeout.store_id, 3, 2) || substr(migrator_timeout.store_id, 1, 2) || substr(migrator_timeout.store_id, 12, 2) || substr(migrator_timeout.store_id, 10, 2) || substr(migrator_timeout.store_id, 17, 2) || substr(migrator_timeout.store_id, 15, 2) || substr(migrator_timeout.store_id, 20, 4) || substr(migrator_timeout.store_id, 25, 12)) AS anon_1, migrator_timeout.destination, hextoraw(substr(migrator_timeout.saga_id, 7, 2) || substr(migrator_timeout.saga_id, 5, 2) || substr(migrator_timeout.saga_id, 3, 2) || substr(migrator_timeout.saga_id, 1, 2) || substr(migrator_timeout.saga_id, 12, 2) || substr(migrator_timeout.saga_id, 10, 2) || substr(migrator_timeout.saga_id, 17, 2) || substr(migrator_timeout.saga_id, 15, 2) || substr(migrator_timeout.saga_id, 20, 4) || substr(migrator_timeout.saga_id, 25, 12)) AS anon_2, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, coalesce(CAST(migrator_timeout.store_extra AS CLOB), :param_1) AS coalesce_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id IS NULL;

INSERT INTO "TimeoutEntity" ("Id", "Destination", "SagaId", "State", "Time", "Headers", "Endpoint") SELECT hextoraw(substr(migrator_timeout.store_id, 7, 2) || substr(migrator_timeout.store_id, 5, 2) || substr(migrator_timeout.store_id, 3, 2) || substr(migrator_timeout.store_id, 1, 2) || substr(migrator_timeout.store_id, 12, 2) || substr(migrator_timeout.store_id, 10, 2) || substr(migrator_timeout.store_id, 17, 2) || substr(migrator_timeout.store_id, 15, 2) || substr(migrator_timeout.store_id, 20, 4) || substr(migrator_timeout.store_id, 25, 12)) AS anon_1, migrator_timeout.destination, hextoraw(substr(migrator_timeout.saga_id, 7, 2) || substr(migrator_timeout.saga_id, 5, 2) || substr(migrator_timeout.saga_id, 3, 2) || substr(migrator_timeout.saga_id, 1, 2) || substr(migrator_timeout.saga_id, 12, 2) || substr(migrator_timeout.saga_id, 10, 2) || substr(migrator_timeout.saga_id, 17, 2) || substr(migrator_timeout.saga_id, 15, 2) || substr(migrator_timeout.saga_id, 20, 4) || substr(migrator_timeout.saga_id, 25, 12)) AS anon_2, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, coalesce(CAST(migrator_timeout.store_extra AS CLOB), :param_1) AS coalesce_1
FROM migrator_timeout
WHERE migrator_timeout.id IN (:id_1);

INSERT INTO "TimeoutEntity" ("Id", "Destination", "SagaId", "State", "Time", "Headers", "Endpoint") SELECT hextoraw(substr(migrator_timeout.store_id, 7, 2) || substr(migrator_timeout.store_id, 5, 2) || substr(migrator_timeout.store_id, 3, 2) || substr(migrator_timeout.store_id, 1, 2) || substr(migrator_timeout.store_id, 12, 2) || substr(migrator_timeout.store_id, 10, 2) || substr(migrator_timeout.store_id, 17, 2) || substr(migrator_timeout.store_id, 15, 2) || substr(migrator_timeout.store_id, 20, 4) || substr(migrator_timeout.store_id, 25, 12)) AS anon_1, migrator_timeout.destination, hextoraw(substr(migrator_timeout.saga_id, 7, 2) || substr(migrator_timeout.saga_id, 5, 2) || substr(migrator_timeout.saga_id, 3, 2) || substr(migrator_timeout.saga_id, 1, 2) || substr(migrator_timeout.saga_id, 12, 2) || substr(migrator_timeout.saga_id, 10, 2) || substr(migrator_timeout.saga_id, 17, 2) || substr(migrator_timeout.saga_id, 15, 2) || substr(migrator_timeout.saga_id, 20, 4) || substr(migrator_timeout.saga_id, 25, 12)) AS anon_2, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, coalesce(CAST(migrator_timeout.store_extra AS CLOB), :param_1) AS coalesce_1
FROM migrator_timeout
WHERE migrator_timeout.id IS NULL;

INSERT INTO "TimeoutEntity" ("Id", "Destination", "SagaId", "State", "Time", "Headers", "Endpoint") SELECT migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, coalesce(CAST(migrator_timeout.store_extra AS CLOB), :param_1) AS coalesce_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1);

INSERT INTO "my.own timeouts" ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion") SELECT migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, migrator_timeout.persistence_version
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1);

INSERT INTO migrator_batch (run_id, endpoint, source, lane, "mode", state, attempt, "size", body_bytes, first_due, last_due, lease_token, claimed_at) VALUES (:run_id, :endpoint, :source, :lane, :"mode", :state, :attempt, :"size", :body_bytes, :first_due, :last_due, :lease_token, SYS_EXTRACT_UTC(SYSTIMESTAMP)) RETURNING migrator_batch.id INTO :ret_0;

INSERT INTO migrator_batch (run_id, endpoint, source, lane, "mode", state, attempt, "size", body_bytes, first_due, last_due, lease_token, claiming_at, parked_at, destination) VALUES (:run_id, :endpoint, :source, :lane, :"mode", :state, :attempt, :"size", :body_bytes, :first_due, :last_due, :lease_token, :claiming_at, SYS_EXTRACT_UTC(SYSTIMESTAMP), :destination) RETURNING migrator_batch.id INTO :ret_0;

INSERT INTO migrator_batch (run_id, endpoint, source, lane, "mode", state, attempt, "size", body_bytes, first_due, last_due, owner, lease_token, claiming_at) VALUES (:run_id, :endpoint, :source, :lane, :"mode", :state, :attempt, :"size", :body_bytes, :first_due, :last_due, :owner, :lease_token, SYS_EXTRACT_UTC(SYSTIMESTAMP)) RETURNING migrator_batch.id INTO :ret_0;

INSERT INTO migrator_batch (run_id, endpoint, source, lane, "mode", state, attempt, "size", body_bytes, first_due, last_due, owner, lease_token, claiming_at, claimed_at) VALUES (:run_id, :endpoint, :source, :lane, :"mode", :state, :attempt, :"size", :body_bytes, :first_due, :last_due, :owner, :lease_token, :claiming_at, SYS_EXTRACT_UTC(SYSTIMESTAMP)) RETURNING migrator_batch.id INTO :ret_0;

INSERT INTO migrator_batch (run_id, endpoint, source, lane, "mode", state, attempt, "size", body_bytes, owner, lease_token, claimed_at) VALUES (:run_id, :endpoint, :source, :lane, :"mode", :state, :attempt, :"size", :body_bytes, :owner, :lease_token, SYS_EXTRACT_UTC(SYSTIMESTAMP)) RETURNING migrator_batch.id INTO :ret_0;

INSERT INTO migrator_event (at, kind, batch_id, endpoint, actor, detail) VALUES (SYS_EXTRACT_UTC(SYSTIMESTAMP), :kind, :batch_id, :endpoint, :actor, :detail) RETURNING migrator_event.id INTO :ret_0;

INSERT INTO migrator_held_destination (source, destination, endpoint, reason, detail, tries, since, next_try_at) VALUES (:source, :destination, :endpoint, :reason, :detail, :tries, :since, :next_try_at);

INSERT INTO migrator_lease (name, token, until, renewed_at) VALUES (:name, :token, :until, :renewed_at);

INSERT INTO migrator_lease (name, token, until, renewed_at, serves) VALUES (:name, :token, :until, :renewed_at, :serves);

INSERT INTO migrator_ledger (id, identity, created_at) VALUES (:id, :identity, SYS_EXTRACT_UTC(SYSTIMESTAMP));

INSERT INTO migrator_run (endpoint, source, options, tool_version, status, begun_at) VALUES (:endpoint, :source, :options, :tool_version, :status, SYS_EXTRACT_UTC(SYSTIMESTAMP)) RETURNING migrator_run.id INTO :ret_0;

INSERT INTO migrator_timeout (source, endpoint, store_id, batch_id, row_index, destination, saga_id, due, body, headers, content_hash, state, reason, reason_detail, store_version, store_extra) VALUES (:source, :endpoint, :store_id, :batch_id, :row_index, :destination, :saga_id, :due, :body, :headers, :content_hash, :state, :reason, :reason_detail, :store_version, :store_extra) RETURNING migrator_timeout.id INTO :ret_0;

INSERT INTO timeouts ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion") SELECT migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, migrator_timeout.persistence_version
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1;

INSERT INTO timeouts ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion") SELECT migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, migrator_timeout.persistence_version
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1);

INSERT INTO timeouts ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion") SELECT migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, migrator_timeout.persistence_version
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1) AND (migrator_timeout.id NOT IN (:id_1));

INSERT INTO timeouts ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion") SELECT migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, migrator_timeout.persistence_version
FROM migrator_timeout
WHERE migrator_timeout.batch_id IS NULL;

INSERT INTO timeouts ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion") SELECT migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, migrator_timeout.persistence_version
FROM migrator_timeout
WHERE migrator_timeout.id IN (:id_1);

INSERT INTO timeouts ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion") SELECT migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.body, migrator_timeout.due, migrator_timeout.headers, migrator_timeout.persistence_version
FROM migrator_timeout
WHERE migrator_timeout.id IS NULL;

INSERT INTO timeouts ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion") VALUES (:Id, :Destination, :SagaId, :State, :Time, :Headers, :PersistenceVersion);

SELECT "StagedTimeoutEntity"."BatchState"
FROM "StagedTimeoutEntity"
WHERE CAST("StagedTimeoutEntity"."BatchState" AS VARCHAR2(500 CHAR)) != :param_1 AND ROWNUM <= :param_2;

SELECT "TimeoutData_migration_abc"."Status"
FROM "TimeoutData_migration_abc"
WHERE CAST("TimeoutData_migration_abc"."Status" AS VARCHAR2(500 CHAR)) != :param_1 AND ROWNUM <= :param_2;

SELECT "TimeoutEntity"."Id"
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND ROWNUM <= :param_1;

SELECT "TimeoutEntity"."Id"
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Id" IN (:Id_1);

SELECT "TimeoutEntity"."Id"
FROM "TimeoutEntity"
WHERE 1 = 0;

SELECT "my.own timeouts"."Id"
FROM "my.own timeouts"
WHERE "my.own timeouts"."Id" IN (:Id_1);

SELECT CASE WHEN (EXISTS (SELECT *
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" <= :Time_1 AND "TimeoutEntity"."Time" >= :Time_2)) THEN 1 ELSE 0 END AS anon_1 FROM DUAL;

SELECT CASE WHEN (EXISTS (SELECT *
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" <= :Time_1 AND "TimeoutEntity"."Time" >= :Time_2)) THEN 1 ELSE 0 END AS anon_1, CASE WHEN (EXISTS (SELECT *
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_2 AND "TimeoutEntity"."Time" <= :Time_3 AND "TimeoutEntity"."Time" >= :Time_4)) THEN 1 ELSE 0 END AS anon_2 FROM DUAL;

SELECT CASE WHEN (EXISTS (SELECT *
FROM timeouts
WHERE timeouts."Time" <= :Time_1 AND timeouts."Time" >= :Time_2 AND (timeouts."Id" NOT IN (:Id_1)))) THEN 1 ELSE 0 END AS anon_1 FROM DUAL;

SELECT CASE WHEN (EXISTS (SELECT *
FROM timeouts
WHERE timeouts."Time" <= :Time_1 AND timeouts."Time" >= :Time_2)) THEN 1 ELSE 0 END AS anon_1 FROM DUAL;

SELECT CASE WHEN (EXISTS (SELECT *
FROM timeouts
WHERE timeouts."Time" <= :Time_1 AND timeouts."Time" >= :Time_2)) THEN 1 ELSE 0 END AS anon_1, CASE WHEN (EXISTS (SELECT *
FROM timeouts
WHERE timeouts."Time" <= :Time_3 AND timeouts."Time" >= :Time_4)) THEN 1 ELSE 0 END AS anon_2 FROM DUAL;

SELECT CASE WHEN (migrator_lease.owner IS NOT NULL AND migrator_lease.until > SYS_EXTRACT_UTC(SYSTIMESTAMP)) THEN 1 ELSE 0 END AS anon_1
FROM migrator_lease
WHERE migrator_lease.name = :name_1 FOR UPDATE OF migrator_lease.name WAIT 5;

SELECT CAST("MigrationsEntity"."MigrationRunId" AS VARCHAR2(500 CHAR)) AS "MigrationRunId", CAST("MigrationsEntity"."EndpointName" AS VARCHAR2(500 CHAR)) AS "EndpointName"
FROM "MigrationsEntity"
WHERE CAST("MigrationsEntity"."Status" AS VARCHAR2(500 CHAR)) IN (:param_1);

SELECT CAST("TimeoutsMigration_State"."MigrationRunId" AS VARCHAR2(500 CHAR)) AS "MigrationRunId", CAST("TimeoutsMigration_State"."EndpointName" AS VARCHAR2(500 CHAR)) AS "EndpointName"
FROM "TimeoutsMigration_State"
WHERE CAST("TimeoutsMigration_State"."Status" AS VARCHAR2(500 CHAR)) IN (:param_1);

SELECT CAST(migrationsentity."MigrationRunId" AS VARCHAR2(500 CHAR)) AS "MigrationRunId", CAST(migrationsentity."EndpointName" AS VARCHAR2(500 CHAR)) AS "EndpointName"
FROM migrationsentity
WHERE CAST(migrationsentity."Status" AS VARCHAR2(500 CHAR)) IN (:param_1);

SELECT DISTINCT "TimeoutEntity"."Endpoint"
FROM "TimeoutEntity";

SELECT DISTINCT migrator_batch.lane
FROM migrator_batch
WHERE migrator_batch.state IN (:state_1);

SELECT DISTINCT migrator_batch.lane
FROM migrator_batch
WHERE migrator_batch.state IN (:state_1) AND migrator_batch.lane < :lane_1;

SELECT DISTINCT migrator_batch.source
FROM migrator_batch;

SELECT DISTINCT migrator_batch.source
FROM migrator_batch
WHERE migrator_batch.endpoint IN (:endpoint_1);

SELECT DISTINCT migrator_run.endpoint, migrator_run.source
FROM migrator_run;

SELECT DISTINCT migrator_timeout.source
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1;

SELECT DISTINCT migrator_timeout.source
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 AND migrator_timeout.endpoint IN (:endpoint_1);

SELECT DISTINCT migrator_timeout.source
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 AND migrator_timeout.store_id = :store_id_1 AND migrator_timeout.batch_id IN (SELECT of_mode.id
FROM migrator_batch of_mode
WHERE of_mode."mode" = :mode_1);

SELECT DISTINCT migrator_timeout.source, migrator_timeout.endpoint
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1;

SELECT SYS_EXTRACT_UTC(SYSTIMESTAMP) AS anon_1 FROM DUAL;

SELECT anon_1.handed_over_at, anon_1.dispatched_at, anon_1."size"
FROM (SELECT migrator_batch.handed_over_at AS handed_over_at, migrator_batch.dispatched_at AS dispatched_at, migrator_batch."size" AS "size"
FROM migrator_batch ORDER BY migrator_batch.id DESC
 FETCH FIRST :param_1 ROWS ONLY) anon_1
WHERE anon_1.handed_over_at >= :handed_over_at_1 OR anon_1.dispatched_at >= :dispatched_at_1;

SELECT coalesce(sum(CASE WHEN (anon_1.is_past = :is_past_1) THEN anon_1.rest ELSE :param_1 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (anon_1.is_far = :is_far_1) THEN anon_1.rest ELSE :param_2 END), :coalesce_4) AS coalesce_3, min(CASE WHEN (anon_1.is_far = :is_far_2) THEN anon_1.first_due END) AS min_1
FROM (SELECT 0 AS is_past, 0 AS is_far, migrator_batch."size" - coalesce(anon_2."rows", :coalesce_5) AS rest, migrator_batch.first_due AS first_due
FROM migrator_batch LEFT OUTER JOIN (SELECT migrator_timeout.batch_id AS batch_id, count(*) AS "rows"
FROM migrator_timeout
WHERE migrator_timeout.state IS NOT NULL GROUP BY migrator_timeout.batch_id) anon_2 ON anon_2.batch_id = migrator_batch.id
WHERE migrator_batch.state = :state_1 AND migrator_batch.run_id = :run_id_1) anon_1;

SELECT coalesce(sum(CASE WHEN (anon_1.is_past = :is_past_1) THEN anon_1.rest ELSE :param_1 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (anon_1.is_far = :is_far_1) THEN anon_1.rest ELSE :param_2 END), :coalesce_4) AS coalesce_3, min(CASE WHEN (anon_1.is_far = :is_far_2) THEN anon_1.first_due END) AS min_1
FROM (SELECT 0 AS is_past, 0 AS is_far, migrator_batch."size" - coalesce(anon_2."rows", :coalesce_5) AS rest, migrator_batch.first_due AS first_due
FROM migrator_batch LEFT OUTER JOIN (SELECT migrator_timeout.batch_id AS batch_id, count(*) AS "rows"
FROM migrator_timeout
WHERE migrator_timeout.state IS NOT NULL GROUP BY migrator_timeout.batch_id) anon_2 ON anon_2.batch_id = migrator_batch.id
WHERE migrator_batch.state = :state_1) anon_1;

SELECT coalesce(sum(CASE WHEN (anon_1.is_past = :is_past_1) THEN anon_1.rest ELSE :param_1 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (anon_1.is_far = :is_far_1) THEN anon_1.rest ELSE :param_2 END), :coalesce_4) AS coalesce_3, min(CASE WHEN (anon_1.is_far = :is_far_2) THEN anon_1.first_due END) AS min_1
FROM (SELECT CASE WHEN (migrator_batch.last_due <= :last_due_1) THEN 1 ELSE 0 END AS is_past, CASE WHEN (migrator_batch.first_due >= :first_due_1 AND (EXISTS (SELECT migrator_timeout_1.id
FROM migrator_timeout migrator_timeout_1
WHERE migrator_timeout_1.batch_id = migrator_batch.id AND migrator_timeout_1.state IS NULL))) THEN 1 ELSE 0 END AS is_far, migrator_batch."size" - coalesce(anon_2."rows", :coalesce_5) AS rest, migrator_batch.first_due AS first_due
FROM migrator_batch LEFT OUTER JOIN (SELECT migrator_timeout.batch_id AS batch_id, count(*) AS "rows"
FROM migrator_timeout
WHERE migrator_timeout.state IS NOT NULL GROUP BY migrator_timeout.batch_id) anon_2 ON anon_2.batch_id = migrator_batch.id
WHERE migrator_batch.state = :state_1 AND migrator_batch.run_id = :run_id_1) anon_1;

SELECT coalesce(sum(CASE WHEN (anon_1.is_past = :is_past_1) THEN anon_1.rest ELSE :param_1 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (anon_1.is_far = :is_far_1) THEN anon_1.rest ELSE :param_2 END), :coalesce_4) AS coalesce_3, min(CASE WHEN (anon_1.is_far = :is_far_2) THEN anon_1.first_due END) AS min_1
FROM (SELECT CASE WHEN (migrator_batch.last_due <= :last_due_1) THEN 1 ELSE 0 END AS is_past, CASE WHEN (migrator_batch.first_due >= :first_due_1 AND (EXISTS (SELECT migrator_timeout_1.id
FROM migrator_timeout migrator_timeout_1
WHERE migrator_timeout_1.batch_id = migrator_batch.id AND migrator_timeout_1.state IS NULL))) THEN 1 ELSE 0 END AS is_far, migrator_batch."size" - coalesce(anon_2."rows", :coalesce_5) AS rest, migrator_batch.first_due AS first_due
FROM migrator_batch LEFT OUTER JOIN (SELECT migrator_timeout.batch_id AS batch_id, count(*) AS "rows"
FROM migrator_timeout
WHERE migrator_timeout.state IS NOT NULL GROUP BY migrator_timeout.batch_id) anon_2 ON anon_2.batch_id = migrator_batch.id
WHERE migrator_batch.state = :state_1) anon_1;

SELECT coalesce(sum(CASE WHEN (migrator_timeout.due >= :due_1) THEN :param_1 ELSE :param_2 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (migrator_timeout.due > :due_2 AND migrator_timeout.due < :due_1) THEN :param_3 ELSE :param_4 END), :coalesce_4) AS coalesce_3, coalesce(sum(CASE WHEN (migrator_timeout.due <= :due_3) THEN :param_5 ELSE :param_6 END), :coalesce_6) AS coalesce_5, min(CASE WHEN (migrator_timeout.due >= :due_1) THEN migrator_timeout.due END) AS min_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id IN (:batch_id_1) AND migrator_timeout.state IS NULL;

SELECT coalesce(sum(CASE WHEN (migrator_timeout.due >= :due_1) THEN :param_1 ELSE :param_2 END), :coalesce_2) AS coalesce_1, coalesce(sum(CASE WHEN (migrator_timeout.due > :due_2 AND migrator_timeout.due < :due_1) THEN :param_3 ELSE :param_4 END), :coalesce_4) AS coalesce_3, coalesce(sum(CASE WHEN (migrator_timeout.due <= :due_3) THEN :param_5 ELSE :param_6 END), :coalesce_6) AS coalesce_5, min(CASE WHEN (migrator_timeout.due >= :due_1) THEN migrator_timeout.due END) AS min_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id IN (:batch_id_1) AND migrator_timeout.state IS NULL AND migrator_timeout.due >= :due_4;

SELECT count(*) AS count_1
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1;

SELECT count(*) AS count_1
FROM (SELECT "NSB_Timeouts"."Owner" AS owner
FROM "NSB_Timeouts"
WHERE 1 = 0 UNION ALL SELECT :param_1 AS anon_1 FROM DUAL) probe
WHERE probe.owner = :owner_1;

SELECT count(*) AS count_1
FROM (SELECT "TimeoutEntity"."Endpoint" AS "Endpoint"
FROM "TimeoutEntity"
WHERE ("TimeoutEntity"."Endpoint" IS NULL OR "TimeoutEntity"."Endpoint" = :Endpoint_1) AND ROWNUM <= :param_1) anon_1;

SELECT count(*) AS count_1
FROM (SELECT "TimeoutEntity"."Endpoint" AS owner
FROM "TimeoutEntity"
WHERE 1 = 0 UNION ALL SELECT :param_1 AS anon_1 FROM DUAL) probe
WHERE probe.owner = :owner_1;

SELECT count(*) AS count_1
FROM (SELECT 1 AS one
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" <= :Time_1 AND "TimeoutEntity"."Time" >= :Time_2 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NULL AND ROWNUM <= :param_2) anon_1;

SELECT count(*) AS count_1
FROM (SELECT 1 AS one
FROM timeouts
WHERE timeouts."Time" <= :Time_1 AND timeouts."Time" >= :Time_2 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NULL AND ROWNUM <= :param_2) anon_1;

SELECT count(*) AS count_1
FROM migrator_batch
WHERE migrator_batch.source != :source_1 AND migrator_batch.state IN (:state_1);

SELECT count(*) AS count_1
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.source IN (:source_1);

SELECT count(*) AS count_1
FROM migrator_timeout
WHERE migrator_timeout.going_back = :going_back_1;

SELECT count(*) AS count_1
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 AND migrator_timeout.source = :source_1;

SELECT count(*) AS count_1
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 AND migrator_timeout.source IN (:source_1);

SELECT count(*) AS count_1
FROM timeouts;

SELECT count(*) AS count_1
FROM timeouts
WHERE (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL;

SELECT count(*) AS count_1, max(migrator_timeout.due) AS max_1
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id
WHERE migrator_batch.source = :source_1 AND migrator_batch.state = :state_1 AND migrator_timeout.state IS NULL AND migrator_timeout.due > SYS_EXTRACT_UTC(SYSTIMESTAMP);

SELECT count(migrator_lease.position) AS count_1
FROM migrator_lease;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped."size" AS NUMBER(19))) AS "size", min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN 0 ELSE 1 END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed."size" AS "size", timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT "TimeoutEntity"."Time" AS due, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, "TimeoutEntity"."Destination" AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) + coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) AS "size", nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1) timed) grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped."size" AS NUMBER(19))) AS "size", min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN 0 ELSE 1 END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed."size" AS "size", timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT timeouts."Time" AS due, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, timeouts."Destination" AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) + coalesce(DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) AS "size", timeouts."Id" AS id
FROM timeouts) timed) grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped."size" AS NUMBER(19))) AS "size", min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE 62 END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed."size" AS "size", timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT "TimeoutEntity"."Time" AS due, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, "TimeoutEntity"."Destination" AS destination, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_2 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_3) THEN 1 ELSE 0 END AS is_odd, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) + coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) AS "size", nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1) timed) grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped."size" AS NUMBER(19))) AS "size", min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE 62 END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed."size" AS "size", timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT timeouts."Time" AS due, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, timeouts."Destination" AS destination, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_2 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_3) THEN 1 ELSE 0 END AS is_odd, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) + coalesce(DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) AS "size", timeouts."Id" AS id
FROM timeouts) timed) grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped."size" AS NUMBER(19))) AS "size", min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed."size" AS "size", timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT "TimeoutEntity"."Time" AS due, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, "TimeoutEntity"."Destination" AS destination, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_2 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_3) THEN 1 ELSE 0 END AS is_odd, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) + coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) AS "size", nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1) timed) grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped."size" AS NUMBER(19))) AS "size", min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed."size" AS "size", timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT "TimeoutEntity"."Time" AS due, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, "TimeoutEntity"."Destination" AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) + coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) AS "size", nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Id" < :param_3) timed) grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped."size" AS NUMBER(19))) AS "size", min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed."size" AS "size", timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT "TimeoutEntity"."Time" AS due, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, "TimeoutEntity"."Destination" AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) + coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) AS "size", nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1) timed) grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped."size" AS NUMBER(19))) AS "size", min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed."size" AS "size", timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT timeouts."Time" AS due, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, timeouts."Destination" AS destination, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_2 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_3) THEN 1 ELSE 0 END AS is_odd, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) + coalesce(DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) AS "size", timeouts."Id" AS id
FROM timeouts) timed) grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped."size" AS NUMBER(19))) AS "size", min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed."size" AS "size", timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT timeouts."Time" AS due, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, timeouts."Destination" AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) + coalesce(DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) AS "size", timeouts."Id" AS id
FROM timeouts
WHERE timeouts."Id" < :param_3) timed) grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd, count(*) AS found, sum(CAST(grouped."size" AS NUMBER(19))) AS "size", min(grouped.id) AS an_id, min(grouped.due) AS first_due, max(grouped.due) AS last_due
FROM (SELECT CASE WHEN (timed.is_usable = 0) THEN -1 ELSE CASE WHEN (timed.due <= :due_1) THEN CASE WHEN (timed.due <= :due_2) THEN CASE WHEN (timed.due <= :due_3) THEN CASE WHEN (timed.due <= :due_4) THEN CASE WHEN (timed.due <= :due_5) THEN CASE WHEN (timed.due <= :due_6) THEN 0 ELSE 1 END ELSE CASE WHEN (timed.due <= :due_7) THEN 2 ELSE 3 END END ELSE CASE WHEN (timed.due <= :due_8) THEN CASE WHEN (timed.due <= :due_9) THEN 4 ELSE 5 END ELSE CASE WHEN (timed.due <= :due_10) THEN 6 ELSE 7 END END END ELSE CASE WHEN (timed.due <= :due_11) THEN CASE WHEN (timed.due <= :due_12) THEN CASE WHEN (timed.due <= :due_13) THEN 8 ELSE 9 END ELSE CASE WHEN (timed.due <= :due_14) THEN 10 ELSE 11 END END ELSE CASE WHEN (timed.due <= :due_15) THEN CASE WHEN (timed.due <= :due_16) THEN 12 ELSE 13 END ELSE CASE WHEN (timed.due <= :due_17) THEN 14 ELSE 15 END END END END ELSE CASE WHEN (timed.due <= :due_18) THEN CASE WHEN (timed.due <= :due_19) THEN CASE WHEN (timed.due <= :due_20) THEN CASE WHEN (timed.due <= :due_21) THEN 16 ELSE 17 END ELSE CASE WHEN (timed.due <= :due_22) THEN 18 ELSE 19 END END ELSE CASE WHEN (timed.due <= :due_23) THEN CASE WHEN (timed.due <= :due_24) THEN 20 ELSE 21 END ELSE CASE WHEN (timed.due <= :due_25) THEN 22 ELSE 23 END END END ELSE CASE WHEN (timed.due <= :due_26) THEN CASE WHEN (timed.due <= :due_27) THEN CASE WHEN (timed.due <= :due_28) THEN 24 ELSE 25 END ELSE CASE WHEN (timed.due <= :due_29) THEN 26 ELSE 27 END END ELSE CASE WHEN (timed.due <= :due_30) THEN CASE WHEN (timed.due <= :due_31) THEN 28 ELSE 29 END ELSE CASE WHEN (timed.due <= :due_32) THEN 30 ELSE 31 END END END END END ELSE CASE WHEN (timed.due <= :due_33) THEN CASE WHEN (timed.due <= :due_34) THEN CASE WHEN (timed.due <= :due_35) THEN CASE WHEN (timed.due <= :due_36) THEN CASE WHEN (timed.due <= :due_37) THEN 32 ELSE 33 END ELSE CASE WHEN (timed.due <= :due_38) THEN 34 ELSE 35 END END ELSE CASE WHEN (timed.due <= :due_39) THEN CASE WHEN (timed.due <= :due_40) THEN 36 ELSE 37 END ELSE CASE WHEN (timed.due <= :due_41) THEN 38 ELSE 39 END END END ELSE CASE WHEN (timed.due <= :due_42) THEN CASE WHEN (timed.due <= :due_43) THEN CASE WHEN (timed.due <= :due_44) THEN 40 ELSE 41 END ELSE CASE WHEN (timed.due <= :due_45) THEN 42 ELSE 43 END END ELSE CASE WHEN (timed.due <= :due_46) THEN CASE WHEN (timed.due <= :due_47) THEN 44 ELSE 45 END ELSE CASE WHEN (timed.due <= :due_48) THEN 46 ELSE 47 END END END END ELSE CASE WHEN (timed.due <= :due_49) THEN CASE WHEN (timed.due <= :due_50) THEN CASE WHEN (timed.due <= :due_51) THEN CASE WHEN (timed.due <= :due_52) THEN 48 ELSE 49 END ELSE CASE WHEN (timed.due <= :due_53) THEN 50 ELSE 51 END END ELSE CASE WHEN (timed.due <= :due_54) THEN CASE WHEN (timed.due <= :due_55) THEN 52 ELSE 53 END ELSE CASE WHEN (timed.due <= :due_56) THEN 54 ELSE 55 END END END ELSE CASE WHEN (timed.due <= :due_57) THEN CASE WHEN (timed.due <= :due_58) THEN CASE WHEN (timed.due <= :due_59) THEN 56 ELSE 57 END ELSE CASE WHEN (timed.due <= :due_60) THEN 58 ELSE 59 END END ELSE CASE WHEN (timed.due <= :due_61) THEN CASE WHEN (timed.due <= :due_62) THEN 60 ELSE 61 END ELSE CASE WHEN (timed.due <= :due_63) THEN 62 ELSE 63 END END END END END END END AS slot, timed.destination AS destination, timed.is_in_ledger AS is_in_ledger, timed.is_odd AS is_odd, timed."size" AS "size", timed.id AS id, CASE WHEN (timed.is_usable != 0) THEN timed.due END AS due
FROM (SELECT timeouts."Time" AS due, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN 1 ELSE 0 END AS is_usable, timeouts."Destination" AS destination, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger, CASE WHEN (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_2) THEN 1 ELSE 0 END AS is_odd, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) + coalesce(DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) AS "size", timeouts."Id" AS id
FROM timeouts) timed) grouped GROUP BY grouped.slot, grouped.destination, grouped.is_in_ledger, grouped.is_odd;

SELECT max(migrator_batch.id) AS max_1
FROM migrator_batch;

SELECT max(migrator_run.id) AS max_1
FROM migrator_run
WHERE migrator_run.source = :source_1 AND migrator_run.endpoint = :endpoint_1;

SELECT max(migrator_timeout.row_index) AS max_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1;

SELECT migrator_batch."size", migrator_batch.body_bytes
FROM migrator_batch
WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1 AND migrator_batch.lease_token = :lease_token_1 FOR UPDATE OF migrator_batch.id WAIT 5;

SELECT migrator_batch.endpoint, migrator_batch.source, migrator_batch.destination, sum(migrator_batch."size") AS "rows"
FROM migrator_batch
WHERE migrator_batch.destination IS NOT NULL AND migrator_batch.state = :state_1 AND migrator_batch.source IN (:source_1) GROUP BY migrator_batch.endpoint, migrator_batch.source, migrator_batch.destination;

SELECT migrator_batch.endpoint, migrator_batch.source, migrator_batch.destination, sum(migrator_batch."size") AS "rows"
FROM migrator_batch
WHERE migrator_batch.destination IS NOT NULL AND migrator_batch.state = :state_1 GROUP BY migrator_batch.endpoint, migrator_batch.source, migrator_batch.destination;

SELECT migrator_batch.endpoint, migrator_batch.source, sum(migrator_batch."size") AS sum_1, sum(migrator_batch.purged) AS sum_2
FROM migrator_batch GROUP BY migrator_batch.endpoint, migrator_batch.source;

SELECT migrator_batch.endpoint, sum(migrator_batch."size") AS sum_1
FROM migrator_batch
WHERE migrator_batch.handed_over_at >= :handed_over_at_1 OR migrator_batch.dispatched_at >= :dispatched_at_1 GROUP BY migrator_batch.endpoint;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.claiming_at IS NOT NULL AND ROWNUM <= :param_1;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.destination IS NOT NULL AND migrator_batch.source IN (:source_1) AND migrator_batch."mode" != :mode_1 AND ROWNUM <= :param_1;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.destination IS NOT NULL AND migrator_batch.source IN (:source_1) AND migrator_batch."mode" = :mode_1 AND ROWNUM <= :param_1;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.source = :source_1 AND ROWNUM <= :param_1;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.source = :source_1 AND migrator_batch.state = :state_1;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND (migrator_batch.last_due IS NULL OR migrator_batch.last_due > :last_due_1) AND ROWNUM <= :param_1;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.last_due >= :last_due_1 AND migrator_batch.handed_over_at >= :handed_over_at_1;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.run_id = :run_id_1 AND (migrator_batch.last_due IS NULL OR migrator_batch.last_due > :last_due_1) AND ROWNUM <= :param_1;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.source = :source_1 AND migrator_batch."mode" != :mode_1 AND migrator_batch.destination = :destination_1 AND migrator_batch.first_due <= :first_due_1 ORDER BY migrator_batch.first_due, migrator_batch.id
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.source = :source_1 AND migrator_batch."mode" != :mode_1 AND migrator_batch.destination = :destination_1 ORDER BY migrator_batch.first_due, migrator_batch.id
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_batch.id, migrator_batch."size", migrator_batch.first_due, migrator_batch.last_due
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND CASE WHEN (migrator_batch.last_due <= :last_due_1 OR migrator_batch.first_due >= :first_due_1) THEN 1 ELSE 0 END = :param_1 ORDER BY migrator_batch.id DESC;

SELECT migrator_batch.id, migrator_batch."size", migrator_batch.first_due, migrator_batch.last_due
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.run_id = :run_id_1 AND CASE WHEN (migrator_batch.last_due <= :last_due_1 OR migrator_batch.first_due >= :first_due_1) THEN 1 ELSE 0 END = :param_1 ORDER BY migrator_batch.id DESC;

SELECT migrator_batch.id, migrator_batch."size", migrator_batch.first_due, migrator_batch.last_due
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.run_id = :run_id_1 ORDER BY migrator_batch.id DESC;

SELECT migrator_batch.id, migrator_batch."size", migrator_batch.first_due, migrator_batch.last_due
FROM migrator_batch
WHERE migrator_batch.state = :state_1 ORDER BY migrator_batch.id DESC;

SELECT migrator_batch.id, migrator_batch.lane, migrator_run.options
FROM migrator_batch JOIN migrator_run ON migrator_run.id = migrator_batch.run_id
WHERE migrator_batch.state IN (:state_1) AND migrator_batch.lane < :lane_1 ORDER BY migrator_batch.id;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch."size"
FROM migrator_batch
WHERE migrator_batch.lane = :lane_1 AND migrator_batch.state = :state_1 AND migrator_batch.dispatched_at < :dispatched_at_1 AND (SELECT migrator_timeout.id
FROM migrator_timeout
WHERE migrator_timeout.batch_id = migrator_batch.id AND migrator_timeout.state IS NULL AND ROWNUM <= :param_1) IS NOT NULL ORDER BY migrator_batch.id
 FETCH FIRST :param_2 ROWS ONLY;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.destination IS NOT NULL AND migrator_batch.state = :state_1 ORDER BY migrator_batch.id;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.id = :id_1;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 FOR UPDATE OF migrator_batch.id WAIT 5;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.id = :id_1 AND migrator_batch.state IN (:state_1) FOR UPDATE OF migrator_batch.id WAIT 5;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.lane = :lane_1 AND migrator_batch.state = :state_1 AND migrator_batch.run_id IN (:run_id_1) AND migrator_batch.id <= :id_1 AND (SELECT migrator_timeout.id
FROM migrator_timeout
WHERE migrator_timeout.batch_id = migrator_batch.id AND ROWNUM <= :param_1) IS NULL ORDER BY migrator_batch.id;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.lane = :lane_1 AND migrator_batch.state IN (:state_1) ORDER BY migrator_batch.id;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.lane IN (:lane_1) AND migrator_batch.state = :state_1 AND migrator_batch.lease_token = :lease_token_1 AND (migrator_batch.run_id NOT IN (:run_id_1)) AND ROWNUM <= :param_1;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.lane IN (:lane_1) AND migrator_batch.state = :state_1 AND migrator_batch.lease_token = :lease_token_1 AND ROWNUM <= :param_1;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.lane IN (:lane_1) AND migrator_batch.state = :state_1 AND migrator_batch.lease_token = :lease_token_1 ORDER BY migrator_batch.id FOR UPDATE OF migrator_batch.id WAIT 5;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.source = :source_1 AND migrator_batch."mode" != :mode_1 AND migrator_batch.run_id = :run_id_1 AND migrator_batch.destination IN (:destination_1) AND migrator_batch."size" < :size_1 AND migrator_batch.body_bytes < :body_bytes_1 ORDER BY migrator_batch.id FOR UPDATE OF migrator_batch.id WAIT 5;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.source = :source_1 AND migrator_batch."mode" = :mode_1 AND migrator_batch.run_id = :run_id_1 AND migrator_batch.destination IN (:destination_1) AND migrator_batch."size" < :size_1 AND migrator_batch.body_bytes < :body_bytes_1 ORDER BY migrator_batch.id FOR UPDATE OF migrator_batch.id WAIT 5;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.endpoint, migrator_batch.source, migrator_batch.lane, migrator_batch."mode", migrator_batch.state, migrator_batch.attempt, migrator_batch."size", migrator_batch.purged, migrator_batch.body_bytes, migrator_batch.first_due, migrator_batch.last_due, migrator_batch.owner, migrator_batch.lease_token, migrator_batch.claiming_at, migrator_batch.claimed_at, migrator_batch.parked_at, migrator_batch.staging_at, migrator_batch.committing_at, migrator_batch.publishing_at, migrator_batch.handed_over_at, migrator_batch.dispatched_at, migrator_batch.doubtful_at, migrator_batch.releasing_at, migrator_batch.released_at, migrator_batch.ledger_id, migrator_batch.destination
FROM migrator_batch
WHERE migrator_batch.state = :state_1 ORDER BY migrator_batch.doubtful_at, migrator_batch.id;

SELECT migrator_batch.id, migrator_batch.run_id, migrator_batch.source, migrator_batch.lane, migrator_batch.state, migrator_batch.lease_token
FROM migrator_batch
WHERE migrator_batch.lane IN (:lane_1) AND migrator_batch.state IN (:state_1) ORDER BY migrator_batch.lane, migrator_batch.id;

SELECT migrator_batch.lane, migrator_run.options, count(*) AS count_1, min(migrator_batch.id) AS min_1
FROM migrator_batch JOIN migrator_run ON migrator_run.id = migrator_batch.run_id
WHERE migrator_batch.state IN (:state_1) GROUP BY migrator_batch.lane, migrator_run.options;

SELECT migrator_batch.source, max(migrator_batch.endpoint) AS max_1
FROM migrator_batch GROUP BY migrator_batch.source;

SELECT migrator_batch.state, count(*) AS count_1
FROM migrator_batch
WHERE migrator_batch.state IN (:state_1) GROUP BY migrator_batch.state;

SELECT migrator_batch.state, migrator_batch.lane, migrator_batch.lease_token
FROM migrator_batch
WHERE migrator_batch.id = :id_1;

SELECT migrator_event.detail
FROM migrator_event
WHERE migrator_event.kind IN (:kind_1) ORDER BY migrator_event.id DESC;

SELECT migrator_event.id, migrator_event.at, migrator_event.kind, migrator_event.batch_id, migrator_event.endpoint, migrator_event.actor, migrator_event.detail
FROM migrator_event
WHERE migrator_event.id IN (SELECT max(migrator_event.id) AS max_1
FROM migrator_event
WHERE migrator_event.kind = :kind_1 AND migrator_event.endpoint IN (:endpoint_1) GROUP BY migrator_event.endpoint);

SELECT migrator_event.id, migrator_event.at, migrator_event.kind, migrator_event.batch_id, migrator_event.endpoint, migrator_event.actor, migrator_event.detail
FROM migrator_event
WHERE migrator_event.kind = :kind_1 ORDER BY migrator_event.id DESC
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_held_destination.source, migrator_held_destination.destination, migrator_held_destination.endpoint, migrator_held_destination.reason, migrator_held_destination.detail, migrator_held_destination.tries, migrator_held_destination.since, migrator_held_destination.next_try_at
FROM migrator_held_destination;

SELECT migrator_held_destination.source, migrator_held_destination.destination, migrator_held_destination.endpoint, migrator_held_destination.reason, migrator_held_destination.detail, migrator_held_destination.tries, migrator_held_destination.since, migrator_held_destination.next_try_at
FROM migrator_held_destination
WHERE migrator_held_destination.source = :source_1 ORDER BY migrator_held_destination.destination;

SELECT migrator_lease.name
FROM migrator_lease;

SELECT migrator_lease.name
FROM migrator_lease
WHERE ROWNUM <= :param_1;

SELECT migrator_lease.name
FROM migrator_lease
WHERE migrator_lease.name = :name_1;

SELECT migrator_lease.name
FROM migrator_lease
WHERE migrator_lease.name = :name_1 FOR UPDATE OF migrator_lease.name WAIT 5;

SELECT migrator_lease.name
FROM migrator_lease
WHERE migrator_lease.serves = :serves_1;

SELECT migrator_lease.name
FROM migrator_lease FOR UPDATE OF migrator_lease.name WAIT 5;

SELECT migrator_lease.name, migrator_lease.owner
FROM migrator_lease
WHERE migrator_lease.owner IS NOT NULL AND migrator_lease.until > SYS_EXTRACT_UTC(SYSTIMESTAMP);

SELECT migrator_lease.name, migrator_lease.owner, migrator_lease.serves
FROM migrator_lease
WHERE migrator_lease.owner IS NOT NULL AND migrator_lease.until > SYS_EXTRACT_UTC(SYSTIMESTAMP) ORDER BY migrator_lease.name;

SELECT migrator_lease.name, migrator_lease.owner, migrator_lease.token, SYS_EXTRACT_UTC(SYSTIMESTAMP) AS now, CASE WHEN (migrator_lease.owner IS NOT NULL AND migrator_lease.until > SYS_EXTRACT_UTC(SYSTIMESTAMP)) THEN 1 ELSE 0 END AS is_alive
FROM migrator_lease
WHERE migrator_lease.name = :name_1;

SELECT migrator_lease.name, migrator_lease.owner, migrator_lease.token, migrator_lease.until, migrator_lease.doing, migrator_lease.renewed_at, migrator_lease.serves, migrator_lease.position
FROM migrator_lease;

SELECT migrator_lease.owner
FROM migrator_lease
WHERE migrator_lease.name = :name_1 AND migrator_lease.owner IS NOT NULL AND migrator_lease.until > SYS_EXTRACT_UTC(SYSTIMESTAMP);

SELECT migrator_lease.owner, CASE WHEN (migrator_lease.until > SYS_EXTRACT_UTC(SYSTIMESTAMP)) THEN 1 ELSE 0 END AS is_alive
FROM migrator_lease
WHERE migrator_lease.name = :name_1;

SELECT migrator_lease.position
FROM migrator_lease
WHERE migrator_lease.position IS NOT NULL;

SELECT migrator_lease.token
FROM migrator_lease
WHERE migrator_lease.name = :name_1;

SELECT migrator_lease.token
FROM migrator_lease
WHERE migrator_lease.name = :name_1 AND migrator_lease.token = :token_1 FOR UPDATE OF migrator_lease.name WAIT 5;

SELECT migrator_ledger.id
FROM migrator_ledger;

SELECT migrator_ledger.id, migrator_ledger.identity, migrator_ledger.created_at
FROM migrator_ledger;

SELECT migrator_progress.endpoint, migrator_progress.state, migrator_progress."rows"
FROM migrator_progress;

SELECT migrator_run.endpoint, migrator_run.source, migrator_run.options
FROM migrator_run
WHERE migrator_run.id IN (SELECT max(migrator_run.id) AS max_1
FROM migrator_run GROUP BY migrator_run.endpoint);

SELECT migrator_run.id, migrator_run.options
FROM migrator_run
WHERE migrator_run.options LIKE :options_1;

SELECT migrator_run.options
FROM migrator_run
WHERE migrator_run.id = :id_1;

SELECT migrator_run.source, migrator_run.endpoint
FROM migrator_run
WHERE migrator_run.id IN (SELECT max(migrator_run.id) AS max_1
FROM migrator_run GROUP BY migrator_run.source);

SELECT migrator_run.status
FROM migrator_run
WHERE migrator_run.source = :source_1 ORDER BY migrator_run.id DESC
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_timeout.batch_id, migrator_batch.endpoint, migrator_batch.source, migrator_timeout.going_back, count(*) AS "rows"
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id
WHERE migrator_timeout.going_back IS NOT NULL AND migrator_timeout.batch_id = :batch_id_1 GROUP BY migrator_timeout.batch_id, migrator_batch.endpoint, migrator_batch.source, migrator_timeout.going_back ORDER BY migrator_timeout.batch_id, migrator_timeout.going_back;

SELECT migrator_timeout.batch_id, migrator_batch.endpoint, migrator_batch.source, migrator_timeout.going_back, count(*) AS "rows"
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id
WHERE migrator_timeout.going_back IS NOT NULL GROUP BY migrator_timeout.batch_id, migrator_batch.endpoint, migrator_batch.source, migrator_timeout.going_back ORDER BY migrator_timeout.batch_id, migrator_timeout.going_back;

SELECT migrator_timeout.destination, count(*) AS count_1, min(migrator_timeout.due) AS min_1, max(migrator_timeout.due) AS max_1
FROM migrator_timeout
WHERE migrator_timeout.state IS NULL AND migrator_timeout.due >= :due_1 AND migrator_timeout.destination IS NOT NULL AND migrator_timeout.batch_id IN (:batch_id_1) GROUP BY migrator_timeout.destination;

SELECT migrator_timeout.destination, count(*) AS count_1, min(migrator_timeout.due) AS min_1, max(migrator_timeout.due) AS max_1
FROM migrator_timeout
WHERE migrator_timeout.state IS NULL AND migrator_timeout.due >= :due_1 AND migrator_timeout.destination IS NOT NULL AND migrator_timeout.batch_id IN (SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.last_due >= :last_due_1 AND (migrator_batch.run_id NOT IN (:run_id_1))) GROUP BY migrator_timeout.destination;

SELECT migrator_timeout.destination, count(*) AS count_1, min(migrator_timeout.due) AS min_1, max(migrator_timeout.due) AS max_1
FROM migrator_timeout
WHERE migrator_timeout.state IS NULL AND migrator_timeout.due >= :due_1 AND migrator_timeout.destination IS NOT NULL AND migrator_timeout.batch_id IN (SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.last_due >= :last_due_1 AND migrator_batch.run_id IN (:run_id_1)) GROUP BY migrator_timeout.destination;

SELECT migrator_timeout.destination, count(*) AS count_1, min(migrator_timeout.due) AS min_1, max(migrator_timeout.due) AS max_1
FROM migrator_timeout
WHERE migrator_timeout.state IS NULL AND migrator_timeout.due >= :due_1 AND migrator_timeout.destination IS NOT NULL AND migrator_timeout.batch_id IN (SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.last_due >= :last_due_1) GROUP BY migrator_timeout.destination;

SELECT migrator_timeout.destination, count(*) AS count_1, min(migrator_timeout.due) AS min_1, max(migrator_timeout.due) AS max_1
FROM migrator_timeout
WHERE migrator_timeout.state IS NULL AND migrator_timeout.due >= :due_1 AND migrator_timeout.destination IS NOT NULL AND migrator_timeout.due < :due_2 AND migrator_timeout.batch_id IN (SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.state = :state_1 AND migrator_batch.last_due >= :last_due_1 AND migrator_batch.first_due < :first_due_1) GROUP BY migrator_timeout.destination;

SELECT migrator_timeout.endpoint, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, count(CASE WHEN (migrator_timeout.state IS NULL AND migrator_batch.state = :state_1 AND migrator_timeout.due > :due_1) THEN :param_1 END) AS waiting, count(CASE WHEN (migrator_timeout.state IS NULL AND migrator_batch.state = :state_1 AND migrator_timeout.due <= :due_2) THEN :param_2 END) AS left, count(CASE WHEN (migrator_timeout.state = :state_2) THEN :param_3 END) AS quarantined
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id
WHERE migrator_timeout.state IS NULL AND migrator_batch.state = :state_1 OR migrator_timeout.state = :state_2 GROUP BY migrator_timeout.endpoint, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END;

SELECT migrator_timeout.endpoint, migrator_timeout.reason, count(*) AS count_1
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 GROUP BY migrator_timeout.endpoint, migrator_timeout.reason ORDER BY migrator_timeout.endpoint, migrator_timeout.reason;

SELECT migrator_timeout.endpoint, migrator_timeout.source, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful') AS coalesce_1, count(*) AS count_1
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id GROUP BY migrator_timeout.endpoint, migrator_timeout.source, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful');

SELECT migrator_timeout.id
FROM migrator_timeout
WHERE migrator_timeout.id = :id_1 AND migrator_timeout.going_back = :going_back_1;

SELECT migrator_timeout.id
FROM migrator_timeout
WHERE migrator_timeout.id > :id_1 AND migrator_timeout.batch_id IN (SELECT migrator_batch.id
FROM migrator_batch
WHERE migrator_batch.claimed_at >= :claimed_at_1) ORDER BY migrator_timeout.id
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_timeout.id, coalesce(2 * DBMS_LOB.GETLENGTH(migrator_timeout.headers), 0) AS headers_bytes, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 AND migrator_timeout.store_id = :store_id_1 AND migrator_timeout.id > :id_1 ORDER BY migrator_timeout.id
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_timeout.id, migrator_timeout.batch_id AS batch, migrator_timeout.row_index, migrator_timeout.endpoint, migrator_timeout.source, migrator_timeout.store_id AS timeout_id, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, migrator_timeout.due AS due_at, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful') AS state, CASE WHEN (migrator_timeout.state = :state_1) THEN migrator_timeout.reason END AS reason, migrator_timeout.content_hash, migrator_batch.claimed_at, CASE WHEN (migrator_timeout.state IS NULL AND migrator_batch.state = :state_2) THEN migrator_batch.handed_over_at END AS handed_over_at
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id
WHERE migrator_timeout.source = :source_1 AND migrator_timeout.store_id IN (:store_id_1) AND coalesce(migrator_timeout.state, '') IN ('', 'quarantined', 'dispatched') AND (migrator_timeout.going_back IS NULL OR migrator_timeout.going_back = :going_back_1) AND (migrator_batch.state NOT IN (:state_3)) ORDER BY migrator_timeout.id;

SELECT migrator_timeout.id, migrator_timeout.batch_id AS batch, migrator_timeout.row_index, migrator_timeout.endpoint, migrator_timeout.source, migrator_timeout.store_id AS timeout_id, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, migrator_timeout.due AS due_at, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful') AS state, CASE WHEN (migrator_timeout.state = :state_1) THEN migrator_timeout.reason END AS reason, migrator_timeout.content_hash, migrator_batch.claimed_at, CASE WHEN (migrator_timeout.state IS NULL AND migrator_batch.state = :state_2) THEN migrator_batch.handed_over_at END AS handed_over_at, both.total
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id JOIN (SELECT found.id AS id, count(*) OVER () AS total
FROM (SELECT (SELECT known.id
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) AS id
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1) found
WHERE found.id IS NOT NULL ORDER BY found.id
 FETCH FIRST :param_2 ROWS ONLY) both ON migrator_timeout.id = both.id ORDER BY migrator_timeout.id;

SELECT migrator_timeout.id, migrator_timeout.batch_id AS batch, migrator_timeout.row_index, migrator_timeout.endpoint, migrator_timeout.source, migrator_timeout.store_id AS timeout_id, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, migrator_timeout.due AS due_at, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful') AS state, CASE WHEN (migrator_timeout.state = :state_1) THEN migrator_timeout.reason END AS reason, migrator_timeout.content_hash, migrator_batch.claimed_at, CASE WHEN (migrator_timeout.state IS NULL AND migrator_batch.state = :state_2) THEN migrator_batch.handed_over_at END AS handed_over_at, both.total
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id JOIN (SELECT found.id AS id, count(*) OVER () AS total
FROM (SELECT (SELECT known.id
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND known.endpoint IN (:endpoint_1) AND ROWNUM <= :param_1) AS id
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1) found
WHERE found.id IS NOT NULL ORDER BY found.id
 FETCH FIRST :param_2 ROWS ONLY) both ON migrator_timeout.id = both.id ORDER BY migrator_timeout.id;

SELECT migrator_timeout.id, migrator_timeout.batch_id AS batch, migrator_timeout.row_index, migrator_timeout.endpoint, migrator_timeout.source, migrator_timeout.store_id AS timeout_id, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, migrator_timeout.due AS due_at, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful') AS state, CASE WHEN (migrator_timeout.state = :state_1) THEN migrator_timeout.reason END AS reason, migrator_timeout.content_hash, migrator_batch.claimed_at, CASE WHEN (migrator_timeout.state IS NULL AND migrator_batch.state = :state_2) THEN migrator_batch.handed_over_at END AS handed_over_at, both.total
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id JOIN (SELECT found.id AS id, count(*) OVER () AS total
FROM (SELECT (SELECT known.id
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) AS id
FROM timeouts) found
WHERE found.id IS NOT NULL ORDER BY found.id
 FETCH FIRST :param_2 ROWS ONLY) both ON migrator_timeout.id = both.id ORDER BY migrator_timeout.id;

SELECT migrator_timeout.id, migrator_timeout.batch_id AS batch, migrator_timeout.row_index, migrator_timeout.endpoint, migrator_timeout.source, migrator_timeout.store_id AS timeout_id, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, migrator_timeout.due AS due_at, coalesce(migrator_timeout.state, migrator_batch.state, 'doubtful') AS state, CASE WHEN (migrator_timeout.state = :state_1) THEN migrator_timeout.reason END AS reason, migrator_timeout.content_hash, migrator_batch.claimed_at, CASE WHEN (migrator_timeout.state IS NULL AND migrator_batch.state = :state_2) THEN migrator_batch.handed_over_at END AS handed_over_at, both.total
FROM migrator_timeout LEFT OUTER JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id JOIN (SELECT found.id AS id, count(*) OVER () AS total
FROM (SELECT (SELECT known.id
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND known.endpoint IN (:endpoint_1) AND ROWNUM <= :param_1) AS id
FROM timeouts) found
WHERE found.id IS NOT NULL ORDER BY found.id
 FETCH FIRST :param_2 ROWS ONLY) both ON migrator_timeout.id = both.id ORDER BY migrator_timeout.id;

SELECT migrator_timeout.id, migrator_timeout.batch_id, migrator_timeout.row_index, migrator_timeout.source, migrator_timeout.store_id, migrator_timeout.due, coalesce(migrator_timeout.state, migrator_batch.state) AS state, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes, migrator_timeout.going_back, 1 AS is_meant
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id
WHERE (migrator_timeout.batch_id, migrator_timeout.row_index) IN (:param_1) FOR UPDATE OF migrator_timeout.id WAIT 5;

SELECT migrator_timeout.id, migrator_timeout.batch_id, migrator_timeout.row_index, migrator_timeout.source, migrator_timeout.store_id, migrator_timeout.due, coalesce(migrator_timeout.state, migrator_batch.state) AS state, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes, migrator_timeout.going_back, CASE WHEN (migrator_timeout.destination = :destination_1) THEN 1 ELSE 0 END AS is_meant
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id
WHERE (migrator_timeout.batch_id, migrator_timeout.row_index) IN (:param_1) FOR UPDATE OF migrator_timeout.id WAIT 5;

SELECT migrator_timeout.id, migrator_timeout.batch_id, migrator_timeout.row_index, migrator_timeout.source, migrator_timeout.store_id, migrator_timeout.due, coalesce(migrator_timeout.state, migrator_batch.state) AS state, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes, migrator_timeout.going_back, CASE WHEN (migrator_timeout.due < :due_1) THEN 1 ELSE 0 END AS is_meant
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id
WHERE (migrator_timeout.batch_id, migrator_timeout.row_index) IN (:param_1) FOR UPDATE OF migrator_timeout.id WAIT 5;

SELECT migrator_timeout.id, migrator_timeout.batch_id, migrator_timeout.state, migrator_batch.state AS batch_state
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id
WHERE migrator_batch.state IN (:state_1) AND CASE WHEN (migrator_batch.state = :state_2) THEN migrator_batch.handed_over_at WHEN (migrator_batch.state = :state_3) THEN migrator_batch.dispatched_at WHEN (migrator_batch.state = :state_4) THEN migrator_batch.released_at END < :param_1 AND (migrator_batch.first_due IS NULL OR migrator_batch.first_due < :first_due_1) AND migrator_timeout.due < :due_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state IN (:state_5)) AND migrator_timeout.going_back IS NULL AND ROWNUM <= :param_2 FOR UPDATE OF migrator_timeout.id WAIT 5;

SELECT migrator_timeout.id, migrator_timeout.batch_id, migrator_timeout.state, migrator_batch.state AS batch_state
FROM migrator_timeout JOIN migrator_batch ON migrator_batch.id = migrator_timeout.batch_id
WHERE migrator_batch.state IN (:state_1) AND CASE WHEN (migrator_batch.state = :state_2) THEN migrator_batch.handed_over_at WHEN (migrator_batch.state = :state_3) THEN migrator_batch.dispatched_at WHEN (migrator_batch.state = :state_4) THEN migrator_batch.released_at END < :param_1 AND (migrator_batch.first_due IS NULL OR migrator_batch.first_due < :first_due_1) AND migrator_timeout.due < :due_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state IN (:state_5)) AND migrator_timeout.going_back IS NULL AND migrator_batch.run_id = :run_id_1 AND ROWNUM <= :param_2 FOR UPDATE OF migrator_timeout.id WAIT 5;

SELECT migrator_timeout.id, migrator_timeout.endpoint, migrator_timeout.source, migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.due, migrator_timeout.body, migrator_timeout.headers, migrator_timeout.store_version, migrator_timeout.store_extra, (SELECT migrator_batch.ledger_id
FROM migrator_batch
WHERE migrator_batch.id = migrator_timeout.batch_id) AS ledger_id
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1) ORDER BY migrator_timeout.row_index;

SELECT migrator_timeout.id, migrator_timeout.endpoint, migrator_timeout.source, migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.saga_id, migrator_timeout.due, migrator_timeout.body, migrator_timeout.headers, migrator_timeout.store_version, migrator_timeout.store_extra, (SELECT migrator_batch.ledger_id
FROM migrator_batch
WHERE migrator_batch.id = migrator_timeout.batch_id) AS ledger_id
FROM migrator_timeout
WHERE migrator_timeout.id IN (:id_1);

SELECT migrator_timeout.id, migrator_timeout.row_index, migrator_timeout.due, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.state IS NULL AND migrator_timeout.row_index IN (:row_index_1) ORDER BY migrator_timeout.due, migrator_timeout.row_index;

SELECT migrator_timeout.id, migrator_timeout.row_index, migrator_timeout.due, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.state IS NULL ORDER BY migrator_timeout.due, migrator_timeout.row_index;

SELECT migrator_timeout.id, migrator_timeout.source, migrator_timeout.endpoint, migrator_timeout.store_id, migrator_timeout.batch_id, migrator_timeout.row_index, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, migrator_timeout.saga_id, migrator_timeout.due, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.persistence_version ELSE migrator_timeout.persistence_version END AS persistence_version, migrator_timeout.content_hash, migrator_timeout.state, migrator_timeout.reason, migrator_timeout.reason_detail, migrator_timeout.store_version, migrator_timeout.store_extra, migrator_timeout.going_back, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 AND migrator_timeout.endpoint IN (:endpoint_1) AND migrator_timeout.id > :id_1 ORDER BY migrator_timeout.id
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_timeout.id, migrator_timeout.source, migrator_timeout.endpoint, migrator_timeout.store_id, migrator_timeout.batch_id, migrator_timeout.row_index, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, migrator_timeout.saga_id, migrator_timeout.due, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.persistence_version ELSE migrator_timeout.persistence_version END AS persistence_version, migrator_timeout.content_hash, migrator_timeout.state, migrator_timeout.reason, migrator_timeout.reason_detail, migrator_timeout.store_version, migrator_timeout.store_extra, migrator_timeout.going_back, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 AND migrator_timeout.id > :id_1 ORDER BY migrator_timeout.id
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_timeout.id, migrator_timeout.source, migrator_timeout.endpoint, migrator_timeout.store_id, migrator_timeout.batch_id, migrator_timeout.row_index, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, migrator_timeout.saga_id, migrator_timeout.due, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.persistence_version ELSE migrator_timeout.persistence_version END AS persistence_version, migrator_timeout.content_hash, migrator_timeout.state, migrator_timeout.reason, migrator_timeout.reason_detail, migrator_timeout.store_version, migrator_timeout.store_extra, migrator_timeout.going_back, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 AND migrator_timeout.reason = :reason_1 AND migrator_timeout.id > :id_1 ORDER BY migrator_timeout.id
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_timeout.id, migrator_timeout.source, migrator_timeout.endpoint, migrator_timeout.store_id, migrator_timeout.batch_id, migrator_timeout.row_index, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, migrator_timeout.saga_id, migrator_timeout.due, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.persistence_version ELSE migrator_timeout.persistence_version END AS persistence_version, migrator_timeout.content_hash, migrator_timeout.state, migrator_timeout.reason, migrator_timeout.reason_detail, migrator_timeout.store_version, migrator_timeout.store_extra, migrator_timeout.going_back, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 AND migrator_timeout.store_id = :store_id_1 AND migrator_timeout.batch_id IN (SELECT of_mode.id
FROM migrator_batch of_mode
WHERE of_mode."mode" = :mode_1) AND migrator_timeout.id > :id_1 ORDER BY migrator_timeout.id
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_timeout.id, migrator_timeout.source, migrator_timeout.endpoint, migrator_timeout.store_id, migrator_timeout.batch_id, migrator_timeout.row_index, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.destination ELSE migrator_timeout.destination END AS destination, migrator_timeout.saga_id, migrator_timeout.due, migrator_timeout.body, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.headers ELSE migrator_timeout.headers END AS headers, CASE WHEN (migrator_timeout.reason = 'unprocessable') THEN migrator_timeout.persistence_version ELSE migrator_timeout.persistence_version END AS persistence_version, migrator_timeout.content_hash, migrator_timeout.state, migrator_timeout.reason, migrator_timeout.reason_detail, migrator_timeout.store_version, migrator_timeout.store_extra, migrator_timeout.going_back, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes
FROM migrator_timeout
WHERE migrator_timeout.state = :state_1 AND migrator_timeout.store_id = :store_id_1 AND migrator_timeout.id > :id_1 ORDER BY migrator_timeout.id
 FETCH FIRST :param_1 ROWS ONLY;

SELECT migrator_timeout.id, migrator_timeout.store_id
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1) ORDER BY migrator_timeout.id;

SELECT migrator_timeout.id, migrator_timeout.store_id
FROM migrator_timeout
WHERE migrator_timeout.id IN (:id_1) ORDER BY migrator_timeout.id;

SELECT migrator_timeout.id, migrator_timeout.store_id, migrator_timeout.due, coalesce(DBMS_LOB.GETLENGTH(migrator_timeout.body), 0) AS body_bytes
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1;

SELECT migrator_timeout.row_index, migrator_timeout.store_id
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.state IS NULL ORDER BY migrator_timeout.row_index;

SELECT migrator_timeout.row_index, migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.due, migrator_timeout.body, migrator_timeout.headers
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.state IS NULL AND migrator_timeout.row_index IN (:row_index_1) ORDER BY migrator_timeout.row_index;

SELECT migrator_timeout.row_index, migrator_timeout.store_id, migrator_timeout.destination, migrator_timeout.due, migrator_timeout.body, migrator_timeout.headers
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.state IS NULL ORDER BY migrator_timeout.row_index;

SELECT migrator_timeout.store_id
FROM migrator_timeout
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.going_back = :going_back_1 ORDER BY migrator_timeout.row_index;

SELECT migrator_timeout.store_id
FROM migrator_timeout
WHERE migrator_timeout.source = :source_1 AND migrator_timeout.store_id IN (:store_id_1) AND coalesce(migrator_timeout.state, '') IN ('', 'quarantined', 'dispatched');

SELECT min("NSB_Timeouts"."Owner") AS min_1
FROM "NSB_Timeouts";

SELECT min("NSB_Timeouts"."Owner") AS min_1
FROM "NSB_Timeouts"
WHERE "NSB_Timeouts"."Owner" > :Endpoint_1;

SELECT min("TimeoutEntity"."Endpoint") AS min_1
FROM "TimeoutEntity";

SELECT min("TimeoutEntity"."Endpoint") AS min_1
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" > :Endpoint_1;

SELECT min(migrator_batch.claimed_at) AS min_1
FROM migrator_batch
WHERE migrator_batch.state IN (:state_1);

SELECT min(migrator_lease.until) AS ends_at, SYS_EXTRACT_UTC(SYSTIMESTAMP) AS now
FROM migrator_lease
WHERE migrator_lease.owner IS NOT NULL AND migrator_lease.until > SYS_EXTRACT_UTC(SYSTIMESTAMP);

SELECT moments.at, count(*) AS found
FROM (SELECT TO_CHAR("TimeoutEntity"."Time", 'YYYY-MM-DD HH24:MI') AS at
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" > :Time_1 AND "TimeoutEntity"."Time" <= :Time_2) moments GROUP BY moments.at
HAVING count(*) >= :count_1;

SELECT moments.at, count(*) AS found
FROM (SELECT TO_CHAR("TimeoutEntity"."Time", 'YYYY-MM-DD HH24:MI:SS') AS at
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" > :Time_1 AND "TimeoutEntity"."Time" <= :Time_2) moments GROUP BY moments.at
HAVING count(*) >= :count_1;

SELECT moments.at, count(*) AS found
FROM (SELECT TO_CHAR(timeouts."Time", 'YYYY-MM-DD HH24:MI') AS at
FROM timeouts
WHERE timeouts."Time" > :Time_1 AND timeouts."Time" <= :Time_2) moments GROUP BY moments.at
HAVING count(*) >= :count_1;

SELECT moments.at, count(*) AS found
FROM (SELECT TO_CHAR(timeouts."Time", 'YYYY-MM-DD HH24:MI:SS') AS at
FROM timeouts
WHERE timeouts."Time" > :Time_1 AND timeouts."Time" <= :Time_2) moments GROUP BY moments.at
HAVING count(*) >= :count_1;

SELECT nvl2("NSB_Timeouts"."Id", lower(substr(rawtohex("NSB_Timeouts"."Id"), 7, 2) || substr(rawtohex("NSB_Timeouts"."Id"), 5, 2) || substr(rawtohex("NSB_Timeouts"."Id"), 3, 2) || substr(rawtohex("NSB_Timeouts"."Id"), 1, 2) || '-' || substr(rawtohex("NSB_Timeouts"."Id"), 11, 2) || substr(rawtohex("NSB_Timeouts"."Id"), 9, 2) || '-' || substr(rawtohex("NSB_Timeouts"."Id"), 15, 2) || substr(rawtohex("NSB_Timeouts"."Id"), 13, 2) || '-' || substr(rawtohex("NSB_Timeouts"."Id"), 17, 4) || '-' || substr(rawtohex("NSB_Timeouts"."Id"), 21, 12)), NULL) AS anon_1
FROM "NSB_Timeouts"
WHERE "NSB_Timeouts"."Id" IN (:Id_1);

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS anon_1
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 ORDER BY "TimeoutEntity"."Id"
 OFFSET :param_1 ROWS
 FETCH FIRST :param_2 ROWS ONLY;

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS anon_1
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Id" IN (:Id_1);

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Id" > :param_2 ORDER BY "TimeoutEntity"."Id"
 FETCH FIRST :param_3 ROWS ONLY;

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Id" IN (:Id_1);

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" > :Time_3 AND "TimeoutEntity"."Time" <= :Time_4 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_2 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_2) IS NULL AND "TimeoutEntity"."Time" > :Time_5 AND "TimeoutEntity"."Time" <= :Time_6 AND NOT ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_3 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_4 OR "TimeoutEntity"."Destination" IS NULL OR "TimeoutEntity"."Destination" IN (:param_5));

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" > :Time_3 AND "TimeoutEntity"."Time" <= :Time_4 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_2 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_2) IS NULL AND ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_3 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_4 OR "TimeoutEntity"."Destination" IS NULL OR "TimeoutEntity"."Destination" IN (:param_5));

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" >= :Time_3 AND "TimeoutEntity"."Time" <= :Time_4 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_2 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_2) IS NULL AND "TimeoutEntity"."Time" > :Time_5 AND "TimeoutEntity"."Time" <= :Time_6 AND NOT ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_3 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_4 OR "TimeoutEntity"."Destination" IS NULL OR "TimeoutEntity"."Destination" IN (:param_5));

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" >= :Time_3 AND "TimeoutEntity"."Time" <= :Time_4 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_2 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_2) IS NULL AND ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_3 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_4 OR "TimeoutEntity"."Destination" IS NULL OR "TimeoutEntity"."Destination" IN (:param_5));

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 ORDER BY "TimeoutEntity"."Id"
 FETCH FIRST :param_2 ROWS ONLY;

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Id" < :param_1 AND "TimeoutEntity"."Id" IN (:Id_1);

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Id" < :param_1 AND "TimeoutEntity"."Time" >= :Time_3 AND "TimeoutEntity"."Time" <= :Time_4 AND "TimeoutEntity"."Time" > :Time_5 AND "TimeoutEntity"."Time" <= :Time_6 AND NOT ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_2 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_3 OR "TimeoutEntity"."Destination" IS NULL OR "TimeoutEntity"."Destination" IN (:param_4));

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Id" < :param_1 AND "TimeoutEntity"."Time" >= :Time_3 AND "TimeoutEntity"."Time" <= :Time_4 AND ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_2 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_3 OR "TimeoutEntity"."Destination" IS NULL OR "TimeoutEntity"."Destination" IN (:param_4));

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Id" IN (:Id_1);

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" >= :Time_3 AND "TimeoutEntity"."Time" <= :Time_4 AND "TimeoutEntity"."Time" > :Time_5 AND "TimeoutEntity"."Time" <= :Time_6 AND NOT ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_2 OR "TimeoutEntity"."Destination" IS NULL OR "TimeoutEntity"."Destination" IN (:param_3));

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" >= :Time_3 AND "TimeoutEntity"."Time" <= :Time_4 AND ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_2 OR "TimeoutEntity"."Destination" IS NULL OR "TimeoutEntity"."Destination" IN (:param_3));

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" >= :Time_3 AND "TimeoutEntity"."Time" <= :Time_4 AND NOT ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_2 OR "TimeoutEntity"."Destination" IS NULL) ORDER BY "TimeoutEntity"."Id"
 FETCH FIRST :param_3 ROWS ONLY;

SELECT nvl2("TimeoutEntity"."Id", lower(substr(rawtohex("TimeoutEntity"."Id"), 7, 2) || substr(rawtohex("TimeoutEntity"."Id"), 5, 2) || substr(rawtohex("TimeoutEntity"."Id"), 3, 2) || substr(rawtohex("TimeoutEntity"."Id"), 1, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 11, 2) || substr(rawtohex("TimeoutEntity"."Id"), 9, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 15, 2) || substr(rawtohex("TimeoutEntity"."Id"), 13, 2) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 17, 4) || '-' || substr(rawtohex("TimeoutEntity"."Id"), 21, 12)), NULL) AS id, "TimeoutEntity"."Destination" AS destination, CASE WHEN ("TimeoutEntity"."Time" BETWEEN :Time_1 AND :Time_2) THEN "TimeoutEntity"."Time" ELSE NULL END AS due_at, "TimeoutEntity"."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM "TimeoutEntity"
WHERE "TimeoutEntity"."Endpoint" = :Endpoint_1 AND "TimeoutEntity"."Time" >= :Time_3 AND "TimeoutEntity"."Time" <= :Time_4 AND NOT ("TimeoutEntity"."Headers" IS NULL OR "TimeoutEntity"."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH("TimeoutEntity"."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH("TimeoutEntity"."Headers"), 0) > :param_2 OR "TimeoutEntity"."Destination" IS NULL) ORDER BY "TimeoutEntity"."Id" DESC
 FETCH FIRST :param_3 ROWS ONLY;

SELECT sum(migrator_batch."size") AS sum_1
FROM migrator_batch
WHERE migrator_batch.source = :source_1 AND migrator_batch.state IN (:state_1);

SELECT timeouts."Destination", timeouts."Headers"
FROM timeouts ORDER BY timeouts."Id"
 FETCH FIRST :param_1 ROWS ONLY;

SELECT timeouts."Id"
FROM timeouts
WHERE 1 = 0;

SELECT timeouts."Id"
FROM timeouts
WHERE ROWNUM <= :param_1;

SELECT timeouts."Id"
FROM timeouts
WHERE timeouts."Id" IN (:Id_1);

SELECT timeouts."Id"
FROM timeouts ORDER BY timeouts."Id"
 OFFSET :param_1 ROWS
 FETCH FIRST :param_2 ROWS ONLY;

SELECT timeouts."Id" AS id
FROM timeouts
WHERE timeouts."Time" <= :Time_1 AND timeouts."Time" >= :Time_2 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NULL ORDER BY timeouts."Time"
 FETCH FIRST :param_2 ROWS ONLY;

SELECT timeouts."Id" AS id
FROM timeouts
WHERE timeouts."Time" <= :Time_1 AND timeouts."Time" >= :Time_2 AND (timeouts."Id" NOT IN (:Id_1)) AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NULL ORDER BY timeouts."Time"
 FETCH FIRST :param_2 ROWS ONLY;

SELECT timeouts."Id" AS id
FROM timeouts
WHERE timeouts."Time" <= :Time_1 AND timeouts."Time" >= :Time_2 AND timeouts."Time" >= :Time_3 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NULL ORDER BY timeouts."Time"
 FETCH FIRST :param_2 ROWS ONLY;

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Id" > :param_2 ORDER BY timeouts."Id"
 FETCH FIRST :param_3 ROWS ONLY;

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Id" IN (:Id_1);

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Time" > :Time_3 AND timeouts."Time" <= :Time_4 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_2 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_2) IS NULL AND (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_3 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_4 OR timeouts."Destination" IS NULL OR timeouts."Destination" IN (:param_5));

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Time" > :Time_3 AND timeouts."Time" <= :Time_4 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_2 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_2) IS NULL AND timeouts."Time" > :Time_5 AND timeouts."Time" <= :Time_6 AND NOT (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_3 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_4 OR timeouts."Destination" IS NULL OR timeouts."Destination" IN (:param_5));

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Time" >= :Time_3 AND timeouts."Time" <= :Time_4 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_2 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_2) IS NULL AND (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_3 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_4 OR timeouts."Destination" IS NULL OR timeouts."Destination" IN (:param_5));

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Time" >= :Time_3 AND timeouts."Time" <= :Time_4 AND (SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_2 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_2) IS NULL AND timeouts."Time" > :Time_5 AND timeouts."Time" <= :Time_6 AND NOT (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_3 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_4 OR timeouts."Destination" IS NULL OR timeouts."Destination" IN (:param_5));

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN ((SELECT 1
FROM migrator_timeout known
WHERE known.source = :source_1 AND known.store_id = timeouts."Id" AND coalesce(known.state, '') IN ('', 'quarantined', 'dispatched') AND ROWNUM <= :param_1) IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts ORDER BY timeouts."Id"
 FETCH FIRST :param_2 ROWS ONLY;

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Id" < :param_1 AND timeouts."Id" IN (:Id_1);

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Id" < :param_1 AND timeouts."Time" >= :Time_3 AND timeouts."Time" <= :Time_4 AND (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_2 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_3 OR timeouts."Destination" IS NULL OR timeouts."Destination" IN (:param_4));

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Id" < :param_1 AND timeouts."Time" >= :Time_3 AND timeouts."Time" <= :Time_4 AND timeouts."Time" > :Time_5 AND timeouts."Time" <= :Time_6 AND NOT (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_2 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_3 OR timeouts."Destination" IS NULL OR timeouts."Destination" IN (:param_4));

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Id" IN (:Id_1);

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Time" >= :Time_3 AND timeouts."Time" <= :Time_4 AND (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_2 OR timeouts."Destination" IS NULL OR timeouts."Destination" IN (:param_3));

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Time" >= :Time_3 AND timeouts."Time" <= :Time_4 AND NOT (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_2 OR timeouts."Destination" IS NULL) ORDER BY timeouts."Id"
 FETCH FIRST :param_3 ROWS ONLY;

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Time" >= :Time_3 AND timeouts."Time" <= :Time_4 AND NOT (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_2 OR timeouts."Destination" IS NULL) ORDER BY timeouts."Id" DESC
 FETCH FIRST :param_3 ROWS ONLY;

SELECT timeouts."Id" AS id, timeouts."Destination" AS destination, CASE WHEN (timeouts."Time" BETWEEN :Time_1 AND :Time_2) THEN timeouts."Time" ELSE NULL END AS due_at, timeouts."Headers" AS headers_text, coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) AS body_bytes, CASE WHEN (NULL IS NOT NULL) THEN 1 ELSE 0 END AS is_in_ledger
FROM timeouts
WHERE timeouts."Time" >= :Time_3 AND timeouts."Time" <= :Time_4 AND timeouts."Time" > :Time_5 AND timeouts."Time" <= :Time_6 AND NOT (timeouts."Headers" IS NULL OR timeouts."Headers" NOT LIKE :Headers_1 OR coalesce(DBMS_LOB.GETLENGTH(timeouts."State"), 0) > :param_1 OR coalesce(2 * DBMS_LOB.GETLENGTH(timeouts."Headers"), 0) > :param_2 OR timeouts."Destination" IS NULL OR timeouts."Destination" IN (:param_3));

SELECT version_num
FROM migrator_alembic_version;

UPDATE migrator_batch SET "mode"=:"mode" WHERE migrator_batch.destination IS NOT NULL AND migrator_batch.source IN (:source_1) AND migrator_batch."mode" = :mode_1 AND migrator_batch.state = :state_1;

UPDATE migrator_batch SET "size"=(migrator_batch."size" - :fewer), purged=(migrator_batch.purged + :more) WHERE migrator_batch.id = :of_batch;

UPDATE migrator_batch SET "size"=(migrator_batch."size" - :size_1), body_bytes=(migrator_batch.body_bytes - :body_bytes_1) WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET "size"=:"size", body_bytes=:body_bytes WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET "size"=:"size", body_bytes=:body_bytes, first_due=:first_due, last_due=:last_due WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET "size"=:"size", purged=:purged, body_bytes=:body_bytes, first_due=:first_due, last_due=:last_due, dispatched_at=:dispatched_at WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET lane=:lane, lease_token=:lease_token WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1 AND migrator_batch.lease_token = :lease_token_1;

UPDATE migrator_batch SET lane=:lane, owner=:owner, lease_token=:lease_token WHERE migrator_batch.id IN (:id_1);

UPDATE migrator_batch SET ledger_id=:ledger_id WHERE migrator_batch.claiming_at IS NOT NULL AND migrator_batch.ledger_id IS NULL;

UPDATE migrator_batch SET owner=:owner, lease_token=:lease_token WHERE migrator_batch.lane = :lane_1 AND migrator_batch.state IN (:state_1) AND migrator_batch.lease_token != :lease_token_1;

UPDATE migrator_batch SET owner=:owner, lease_token=:lease_token WHERE migrator_batch.state IN (:state_1);

UPDATE migrator_batch SET run_id=:run_id WHERE migrator_batch.source = :source_1 AND migrator_batch.state = :state_1 AND migrator_batch.lease_token = :lease_token_1 AND migrator_batch.owner IS NULL;

UPDATE migrator_batch SET run_id=:run_id, lane=:lane, "mode"=:"mode", state=:state, attempt=:attempt, owner=:owner, lease_token=:lease_token, claimed_at=SYS_EXTRACT_UTC(SYSTIMESTAMP), destination=:destination WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET run_id=:run_id, lane=:lane, state=:state, attempt=:attempt, owner=:owner, lease_token=:lease_token WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET run_id=:run_id, lane=:lane, state=:state, attempt=:attempt, owner=:owner, lease_token=:lease_token, claimed_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET state=:state, "size"=:"size", body_bytes=:body_bytes, first_due=:first_due, last_due=:last_due, claimed_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, claimed_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1 AND migrator_batch.lease_token = :lease_token_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, committing_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1 AND migrator_batch.lease_token = :lease_token_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, dispatched_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1 AND migrator_batch.lease_token = :lease_token_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, doubtful_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1 AND migrator_batch.lease_token = :lease_token_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, handed_over_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1 AND migrator_batch.lease_token = :lease_token_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, owner=:owner, lease_token=:lease_token, handed_over_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, publishing_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1 AND migrator_batch.lease_token = :lease_token_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, released_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, released_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1 AND migrator_batch.lease_token = :lease_token_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, releasing_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1;

UPDATE migrator_batch SET state=:state, attempt=:attempt, staging_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.id = :id_1 AND migrator_batch.state = :state_1 AND migrator_batch.attempt = :attempt_1 AND migrator_batch.lease_token = :lease_token_1;

UPDATE migrator_batch SET state=:state, doubtful_at=SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE migrator_batch.state IN (:state_1);

UPDATE migrator_held_destination SET endpoint=:endpoint, reason=:reason, detail=:detail, tries=:tries, since=:since, next_try_at=:next_try_at WHERE migrator_held_destination.source = :source_1 AND migrator_held_destination.destination = :destination_1;

UPDATE migrator_lease SET owner=:owner, token=(migrator_lease.token + :token_1), until=SYS_EXTRACT_UTC(SYSTIMESTAMP), doing=:doing;

UPDATE migrator_lease SET owner=:owner, token=(migrator_lease.token + :token_1), until=SYS_EXTRACT_UTC(SYSTIMESTAMP), doing=:doing WHERE migrator_lease.name = :name_1 AND migrator_lease.owner = :owner_1;

UPDATE migrator_lease SET owner=:owner, token=(migrator_lease.token + :token_1), until=SYS_EXTRACT_UTC(SYSTIMESTAMP), doing=:doing WHERE migrator_lease.name = :name_1 AND migrator_lease.token = :token_2;

UPDATE migrator_lease SET owner=:owner, token=:token, until=:until, doing=:doing, renewed_at=:renewed_at WHERE migrator_lease.name = :name_1;

UPDATE migrator_lease SET position=:position;

UPDATE migrator_lease SET until=:until, doing=:doing, renewed_at=:renewed_at WHERE migrator_lease.name = :name_1 AND migrator_lease.token = :token_1;

UPDATE migrator_ledger SET id=:id, identity=:identity;

UPDATE migrator_ledger SET identity=:identity;

UPDATE migrator_timeout SET batch_id=:batch_id, row_index=:at WHERE migrator_timeout.id = :of_row;

UPDATE migrator_timeout SET batch_id=:batch_id, row_index=:row_index, state=:state, reason=:reason, reason_detail=:reason_detail WHERE migrator_timeout.id = :id_1;

UPDATE migrator_timeout SET going_back=:going_back WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.going_back = :going_back_1;

UPDATE migrator_timeout SET going_back=:going_back WHERE migrator_timeout.id IN (:id_1);

UPDATE migrator_timeout SET going_back=:going_back WHERE migrator_timeout.id IN (:id_1) AND migrator_timeout.going_back = :going_back_1;

UPDATE migrator_timeout SET state=:state WHERE migrator_timeout.batch_id = :batch_id_1;

UPDATE migrator_timeout SET state=:state WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1);

UPDATE migrator_timeout SET state=:state WHERE migrator_timeout.batch_id = :batch_id_1 AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1) AND (migrator_timeout.id NOT IN (:id_1));

UPDATE migrator_timeout SET state=:state WHERE migrator_timeout.batch_id IS NULL;

UPDATE migrator_timeout SET state=:state WHERE migrator_timeout.id IN (:id_1);

UPDATE migrator_timeout SET state=:state, going_back=:going_back WHERE migrator_timeout.id IN (:id_1);

UPDATE migrator_timeout SET state=:state, going_back=:going_back WHERE migrator_timeout.id IN (:id_1) AND migrator_timeout.going_back = :going_back_1;

UPDATE migrator_timeout SET state=:state, reason=:reason, reason_detail=:reason_detail WHERE migrator_timeout.batch_id = :batch_id_1;

UPDATE migrator_timeout SET state=:state, reason=:reason, reason_detail=:reason_detail WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.row_index IN (:row_index_1) AND (migrator_timeout.state IS NULL OR migrator_timeout.state = :state_1);

UPDATE migrator_timeout SET state=:state, reason=:reason, reason_detail=:reason_detail WHERE migrator_timeout.id IN (:id_1);

UPDATE migrator_timeout SET state=:state, reason=:reason, reason_detail=:reason_detail, going_back=:going_back WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.going_back = :going_back_1;

UPDATE migrator_timeout SET state=:state, reason=:reason, reason_detail=:reason_detail, going_back=:going_back WHERE migrator_timeout.id IN (:id_1);

UPDATE migrator_timeout SET state=:state, reason=:reason, reason_detail=:reason_detail, going_back=:going_back WHERE migrator_timeout.id IN (:id_1) AND migrator_timeout.going_back = :going_back_1;

WITH kept AS
(SELECT migrator_timeout.batch_id AS batch_id, count(*) AS "rows"
FROM migrator_timeout GROUP BY migrator_timeout.batch_id)
 SELECT gap.batch, gap.endpoint, gap.state, gap."size", gap.purged, gap."rows", count(*) OVER () AS total
FROM (SELECT migrator_batch.id AS batch, migrator_batch.endpoint AS endpoint, migrator_batch.state AS state, migrator_batch."size" AS "size", migrator_batch.purged AS purged, coalesce(kept."rows", :coalesce_1) AS "rows"
FROM migrator_batch LEFT OUTER JOIN kept ON kept.batch_id = migrator_batch.id
WHERE migrator_batch."size" - migrator_batch.purged != coalesce(kept."rows", :coalesce_1) UNION ALL SELECT kept.batch_id AS batch_id, (SELECT min(migrator_timeout.endpoint) AS min_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id = kept.batch_id) AS anon_1, 'doubtful', 0, 0, kept."rows" AS "rows"
FROM kept LEFT OUTER JOIN migrator_batch ON migrator_batch.id = kept.batch_id
WHERE migrator_batch.id IS NULL) gap
WHERE gap.endpoint IN (:endpoint_1) ORDER BY gap.batch
 FETCH FIRST :param_1 ROWS ONLY;

WITH kept AS
(SELECT migrator_timeout.batch_id AS batch_id, count(*) AS "rows"
FROM migrator_timeout GROUP BY migrator_timeout.batch_id)
 SELECT gap.batch, gap.endpoint, gap.state, gap."size", gap.purged, gap."rows", count(*) OVER () AS total
FROM (SELECT migrator_batch.id AS batch, migrator_batch.endpoint AS endpoint, migrator_batch.state AS state, migrator_batch."size" AS "size", migrator_batch.purged AS purged, coalesce(kept."rows", :coalesce_1) AS "rows"
FROM migrator_batch LEFT OUTER JOIN kept ON kept.batch_id = migrator_batch.id
WHERE migrator_batch."size" - migrator_batch.purged != coalesce(kept."rows", :coalesce_1) UNION ALL SELECT kept.batch_id AS batch_id, (SELECT min(migrator_timeout.endpoint) AS min_1
FROM migrator_timeout
WHERE migrator_timeout.batch_id = kept.batch_id) AS anon_1, 'doubtful', 0, 0, kept."rows" AS "rows"
FROM kept LEFT OUTER JOIN migrator_batch ON migrator_batch.id = kept.batch_id
WHERE migrator_batch.id IS NULL) gap ORDER BY gap.batch
 FETCH FIRST :param_1 ROWS ONLY;

