INSERT INTO `Sales_Orders_TimeoutData` (`Id`, `Destination`, `SagaId`, `State`, `Time`, `Headers`, `PersistenceVersion`) VALUES (:Id, :Destination, :SagaId, :State, :Time, :Headers, :PersistenceVersion);

DELETE FROM `Sales_Orders_TimeoutData` WHERE `Sales_Orders_TimeoutData`.`Id` IN (:Id_1_1) AND (SELECT 1 
FROM migrator_timeout AS known 
WHERE known.source = :source_1 AND known.open_store_id = `Sales_Orders_TimeoutData`.`Id` 
 LIMIT :param_1) IS NOT NULL;

DELETE FROM `Sales_Orders_TimeoutData` WHERE `Sales_Orders_TimeoutData`.`SagaId` IN (:SagaId_1_1);

