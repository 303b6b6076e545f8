import { makeIdempotent } from "@aws-lambda-powertools/idempotency";
import { DynamoDBPersistenceLayer } from "@aws-lambda-powertools/idempotency/dynamodb";

const persistenceStore = new DynamoDBPersistenceLayer({ tableName: "idempotency" });
const charge = makeIdempotent(async ({ order }: { order: string }) => `paid ${order}`, {
  persistenceStore,
});
console.log(await charge({ order: "order-7" })); // paid order-7
