import "./global-require.ts";
import { makeIdempotent } from "@aws-lambda-powertools/idempotency";
import { DynamoDBPersistenceLayer } from "@aws-lambda-powertools/idempotency/dynamodb";

/** The idempotency of Powertools on DynamoDB. */
export const handler = makeIdempotent(async (_event: object) => ({ statusCode: 200 }), {
  persistenceStore: new DynamoDBPersistenceLayer({ tableName: "idempotency" }),
});
