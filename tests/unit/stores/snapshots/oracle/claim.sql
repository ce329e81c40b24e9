SELECT CASE WHEN (EXISTS (SELECT * 
FROM sales_orders_to 
WHERE sales_orders_to.expiretime <= CAST(:Time_1 AS DATE) AND sales_orders_to.expiretime > CAST(:Time_2 AS DATE) AND sales_orders_to.expiretime >= CAST(:Time_3 AS DATE))) THEN 1 ELSE 0 END AS anon_1 FROM DUAL;

SELECT /*+ FIRST_ROWS(200) */ sales_orders_to.id AS id, sales_orders_to.expiretime AS due, coalesce(DBMS_LOB.GETLENGTH(sales_orders_to.state), 0) AS body_bytes, coalesce(2 * DBMS_LOB.GETLENGTH(sales_orders_to.headers), 0) AS headers_bytes 
FROM sales_orders_to 
WHERE sales_orders_to.expiretime <= CAST(:Time_1 AS DATE) AND sales_orders_to.expiretime > CAST(:Time_2 AS DATE) AND sales_orders_to.expiretime >= CAST(:Time_3 AS DATE) AND (SELECT 1 
FROM migrator_timeout known 
WHERE known.source = :source_1 AND known.open_store_id = sales_orders_to.id AND ROWNUM <= :param_1) IS NULL ORDER BY sales_orders_to.expiretime FOR UPDATE SKIP LOCKED;

SELECT /*+ FIRST_ROWS(200) */ sales_orders_to.id AS id, sales_orders_to.expiretime AS due, coalesce(DBMS_LOB.GETLENGTH(sales_orders_to.state), 0) AS body_bytes, coalesce(2 * DBMS_LOB.GETLENGTH(sales_orders_to.headers), 0) AS headers_bytes 
FROM sales_orders_to 
WHERE sales_orders_to.expiretime <= CAST(:Time_1 AS DATE) AND sales_orders_to.expiretime >= CAST(:Time_2 AS DATE) AND sales_orders_to.expiretime >= CAST(:Time_3 AS DATE) AND sales_orders_to.id IN (:Id_1_1) AND (SELECT 1 
FROM migrator_timeout known 
WHERE known.source = :source_1 AND known.open_store_id = sales_orders_to.id AND ROWNUM <= :param_1) IS NULL ORDER BY sales_orders_to.expiretime FOR UPDATE SKIP LOCKED;

INSERT INTO migrator_timeout (source, endpoint, store_id, batch_id, destination, saga_id, due, body, headers, persistence_version, row_index, content_hash) SELECT :param_1 AS anon_1, :param_2 AS anon_2, sales_orders_to.id, :param_3 AS anon_3, sales_orders_to.destination, sales_orders_to.sagaid, sales_orders_to.expiretime, sales_orders_to.state, sales_orders_to.headers, sales_orders_to.persistenceversion, :place AS anon_4, :hashed AS anon_5 
FROM sales_orders_to 
WHERE sales_orders_to.id = :wanted;

SELECT sales_orders_to.id AS id, sales_orders_to.headers AS headers, sales_orders_to.state AS body 
FROM sales_orders_to 
WHERE sales_orders_to.id IN (:Id_1_1);

DELETE FROM sales_orders_to WHERE sales_orders_to.id IN (:Id_1_1);

SELECT sales_orders_to.id 
FROM sales_orders_to 
WHERE sales_orders_to.id IN (:Id_1_1) FOR UPDATE WAIT 5;

