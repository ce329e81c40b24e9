INSERT INTO sales_orders_to (id, destination, sagaid, state, expiretime, headers, persistenceversion) VALUES (:Id, :Destination, :SagaId, :State, CAST(:Time AS DATE), :Headers, :PersistenceVersion);

DELETE FROM sales_orders_to WHERE sales_orders_to.id IN (:Id_1_1) AND (SELECT 1 
FROM migrator_timeout known 
WHERE known.source = :source_1 AND known.open_store_id = sales_orders_to.id AND ROWNUM <= :param_1) IS NOT NULL;

DELETE FROM sales_orders_to WHERE sales_orders_to.sagaid IN (:SagaId_1_1);

