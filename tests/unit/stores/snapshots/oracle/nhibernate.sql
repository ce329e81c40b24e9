SELECT count(*) AS count_1 
FROM (SELECT timeoutentity.endpoint AS owner 
FROM timeoutentity 
WHERE 1 = 0 UNION ALL SELECT :param_1 AS anon_1 FROM DUAL) probe 
WHERE probe.owner = :owner_1;

SELECT CASE WHEN (EXISTS (SELECT * 
FROM timeoutentity 
WHERE timeoutentity.endpoint = :Endpoint_1 AND timeoutentity.time <= CAST(:Time_1 AS TIMESTAMP) AND timeoutentity.time > CAST(:Time_2 AS TIMESTAMP) AND timeoutentity.time >= CAST(:Time_3 AS TIMESTAMP))) THEN 1 ELSE 0 END AS anon_1 FROM DUAL;

SELECT /*+ FIRST_ROWS(200) */ nvl2(timeoutentity.id, lower(substr(rawtohex(timeoutentity.id), 7, 2) || substr(rawtohex(timeoutentity.id), 5, 2) || substr(rawtohex(timeoutentity.id), 3, 2) || substr(rawtohex(timeoutentity.id), 1, 2) || '-' || substr(rawtohex(timeoutentity.id), 11, 2) || substr(rawtohex(timeoutentity.id), 9, 2) || '-' || substr(rawtohex(timeoutentity.id), 15, 2) || substr(rawtohex(timeoutentity.id), 13, 2) || '-' || substr(rawtohex(timeoutentity.id), 17, 4) || '-' || substr(rawtohex(timeoutentity.id), 21, 12)), NULL) AS id, timeoutentity.time AS due, coalesce(DBMS_LOB.GETLENGTH(timeoutentity.state), 0) AS body_bytes, coalesce(2 * DBMS_LOB.GETLENGTH(timeoutentity.headers), 0) AS headers_bytes 
FROM timeoutentity 
WHERE timeoutentity.endpoint = :Endpoint_1 AND timeoutentity.time <= CAST(:Time_1 AS TIMESTAMP) AND timeoutentity.time > CAST(:Time_2 AS TIMESTAMP) AND timeoutentity.time >= CAST(:Time_3 AS TIMESTAMP) AND (SELECT 1 
FROM migrator_timeout known 
WHERE known.source = :source_1 AND known.open_store_id = nvl2(timeoutentity.id, lower(substr(rawtohex(timeoutentity.id), 7, 2) || substr(rawtohex(timeoutentity.id), 5, 2) || substr(rawtohex(timeoutentity.id), 3, 2) || substr(rawtohex(timeoutentity.id), 1, 2) || '-' || substr(rawtohex(timeoutentity.id), 11, 2) || substr(rawtohex(timeoutentity.id), 9, 2) || '-' || substr(rawtohex(timeoutentity.id), 15, 2) || substr(rawtohex(timeoutentity.id), 13, 2) || '-' || substr(rawtohex(timeoutentity.id), 17, 4) || '-' || substr(rawtohex(timeoutentity.id), 21, 12)), NULL) AND ROWNUM <= :param_1) IS NULL ORDER BY timeoutentity.time FOR UPDATE SKIP LOCKED;

SELECT /*+ FIRST_ROWS(200) */ nvl2(timeoutentity.id, lower(substr(rawtohex(timeoutentity.id), 7, 2) || substr(rawtohex(timeoutentity.id), 5, 2) || substr(rawtohex(timeoutentity.id), 3, 2) || substr(rawtohex(timeoutentity.id), 1, 2) || '-' || substr(rawtohex(timeoutentity.id), 11, 2) || substr(rawtohex(timeoutentity.id), 9, 2) || '-' || substr(rawtohex(timeoutentity.id), 15, 2) || substr(rawtohex(timeoutentity.id), 13, 2) || '-' || substr(rawtohex(timeoutentity.id), 17, 4) || '-' || substr(rawtohex(timeoutentity.id), 21, 12)), NULL) AS id, timeoutentity.time AS due, coalesce(DBMS_LOB.GETLENGTH(timeoutentity.state), 0) AS body_bytes, coalesce(2 * DBMS_LOB.GETLENGTH(timeoutentity.headers), 0) AS headers_bytes 
FROM timeoutentity 
WHERE timeoutentity.endpoint = :Endpoint_1 AND timeoutentity.time <= CAST(:Time_1 AS TIMESTAMP) AND timeoutentity.time >= CAST(:Time_2 AS TIMESTAMP) AND timeoutentity.time >= CAST(:Time_3 AS TIMESTAMP) AND timeoutentity.id IN (:Id_1_1) AND (SELECT 1 
FROM migrator_timeout known 
WHERE known.source = :source_1 AND known.open_store_id = nvl2(timeoutentity.id, lower(substr(rawtohex(timeoutentity.id), 7, 2) || substr(rawtohex(timeoutentity.id), 5, 2) || substr(rawtohex(timeoutentity.id), 3, 2) || substr(rawtohex(timeoutentity.id), 1, 2) || '-' || substr(rawtohex(timeoutentity.id), 11, 2) || substr(rawtohex(timeoutentity.id), 9, 2) || '-' || substr(rawtohex(timeoutentity.id), 15, 2) || substr(rawtohex(timeoutentity.id), 13, 2) || '-' || substr(rawtohex(timeoutentity.id), 17, 4) || '-' || substr(rawtohex(timeoutentity.id), 21, 12)), NULL) AND ROWNUM <= :param_1) IS NULL ORDER BY timeoutentity.time FOR UPDATE SKIP LOCKED;

INSERT INTO migrator_timeout (source, endpoint, store_id, batch_id, destination, saga_id, due, body, headers, persistence_version, store_extra, row_index, content_hash) SELECT :param_1 AS anon_1, :param_2 AS anon_2, nvl2(timeoutentity.id, lower(substr(rawtohex(timeoutentity.id), 7, 2) || substr(rawtohex(timeoutentity.id), 5, 2) || substr(rawtohex(timeoutentity.id), 3, 2) || substr(rawtohex(timeoutentity.id), 1, 2) || '-' || substr(rawtohex(timeoutentity.id), 11, 2) || substr(rawtohex(timeoutentity.id), 9, 2) || '-' || substr(rawtohex(timeoutentity.id), 15, 2) || substr(rawtohex(timeoutentity.id), 13, 2) || '-' || substr(rawtohex(timeoutentity.id), 17, 4) || '-' || substr(rawtohex(timeoutentity.id), 21, 12)), NULL) AS anon_3, :param_3 AS anon_4, timeoutentity.destination, nvl2(timeoutentity.sagaid, lower(substr(rawtohex(timeoutentity.sagaid), 7, 2) || substr(rawtohex(timeoutentity.sagaid), 5, 2) || substr(rawtohex(timeoutentity.sagaid), 3, 2) || substr(rawtohex(timeoutentity.sagaid), 1, 2) || '-' || substr(rawtohex(timeoutentity.sagaid), 11, 2) || substr(rawtohex(timeoutentity.sagaid), 9, 2) || '-' || substr(rawtohex(timeoutentity.sagaid), 15, 2) || substr(rawtohex(timeoutentity.sagaid), 13, 2) || '-' || substr(rawtohex(timeoutentity.sagaid), 17, 4) || '-' || substr(rawtohex(timeoutentity.sagaid), 21, 12)), NULL) AS anon_5, timeoutentity.time, timeoutentity.state, timeoutentity.headers, NULL AS anon_6, timeoutentity.endpoint, :place AS anon_7, :hashed AS anon_8 
FROM timeoutentity 
WHERE timeoutentity.id = :wanted;

SELECT nvl2(timeoutentity.id, lower(substr(rawtohex(timeoutentity.id), 7, 2) || substr(rawtohex(timeoutentity.id), 5, 2) || substr(rawtohex(timeoutentity.id), 3, 2) || substr(rawtohex(timeoutentity.id), 1, 2) || '-' || substr(rawtohex(timeoutentity.id), 11, 2) || substr(rawtohex(timeoutentity.id), 9, 2) || '-' || substr(rawtohex(timeoutentity.id), 15, 2) || substr(rawtohex(timeoutentity.id), 13, 2) || '-' || substr(rawtohex(timeoutentity.id), 17, 4) || '-' || substr(rawtohex(timeoutentity.id), 21, 12)), NULL) AS id, timeoutentity.headers AS headers, timeoutentity.state AS body 
FROM timeoutentity 
WHERE timeoutentity.id IN (:Id_1_1);

DELETE FROM timeoutentity WHERE timeoutentity.id IN (:Id_1_1);

SELECT timeoutentity.id 
FROM timeoutentity 
WHERE timeoutentity.id IN (:Id_1_1) FOR UPDATE WAIT 5;

INSERT INTO timeoutentity (id, destination, sagaid, state, time, headers, endpoint) SELECT hextoraw(substr(migrator_timeout.store_id, 7, 2) || substr(migrator_timeout.store_id, 5, 2) || substr(migrator_timeout.store_id, 3, 2) || substr(migrator_timeout.store_id, 1, 2) || substr(migrator_timeout.store_id, 12, 2) || substr(migrator_timeout.store_id, 10, 2) || substr(migrator_timeout.store_id, 17, 2) || substr(migrator_timeout.store_id, 15, 2) || substr(migrator_timeout.store_id, 20, 4) || substr(migrator_timeout.store_id, 25, 12)) AS anon_1, migrator_timeout.destination, hextoraw(substr(migrator_timeout.saga_id, 7, 2) || substr(migrator_timeout.saga_id, 5, 2) || substr(migrator_timeout.saga_id, 3, 2) || substr(migrator_timeout.saga_id, 1, 2) || substr(migrator_timeout.saga_id, 12, 2) || substr(migrator_timeout.saga_id, 10, 2) || substr(migrator_timeout.saga_id, 17, 2) || substr(migrator_timeout.saga_id, 15, 2) || substr(migrator_timeout.saga_id, 20, 4) || substr(migrator_timeout.saga_id, 25, 12)) AS anon_2, migrator_timeout.body, CAST(migrator_timeout.due AS TIMESTAMP) AS due, migrator_timeout.headers, coalesce(CAST(migrator_timeout.store_extra AS VARCHAR2(440 CHAR)), :param_1) AS coalesce_1 
FROM migrator_timeout 
WHERE migrator_timeout.batch_id = :batch_id_1 AND migrator_timeout.state IS NULL;

INSERT INTO timeoutentity (id, destination, sagaid, state, endpoint, time, headers) VALUES (:Id, :Destination, :SagaId, :State, :Endpoint, CAST(:Time AS TIMESTAMP), :Headers);

DELETE FROM timeoutentity WHERE timeoutentity.id IN (:Id_1_1) AND (SELECT 1 
FROM migrator_timeout known 
WHERE known.source = :source_1 AND known.open_store_id = nvl2(timeoutentity.id, lower(substr(rawtohex(timeoutentity.id), 7, 2) || substr(rawtohex(timeoutentity.id), 5, 2) || substr(rawtohex(timeoutentity.id), 3, 2) || substr(rawtohex(timeoutentity.id), 1, 2) || '-' || substr(rawtohex(timeoutentity.id), 11, 2) || substr(rawtohex(timeoutentity.id), 9, 2) || '-' || substr(rawtohex(timeoutentity.id), 15, 2) || substr(rawtohex(timeoutentity.id), 13, 2) || '-' || substr(rawtohex(timeoutentity.id), 17, 4) || '-' || substr(rawtohex(timeoutentity.id), 21, 12)), NULL) AND ROWNUM <= :param_1) IS NOT NULL;

DELETE FROM timeoutentity WHERE timeoutentity.sagaid IN (:SagaId_1_1);

