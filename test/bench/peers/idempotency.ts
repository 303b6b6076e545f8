import "./global-require.ts";
import { makeIdempotent } from "@aws-lambda-powertools/idempotency";
import { CachePersistenceLayer } from "@aws-lambda-powertools/idempotency/cache";
import { DynamoDBPersistenceLayer } from "@aws-lambda-powertools/idempotency/dynamodb";
import type { BasePersistenceLayer } from "@aws-lambda-powertools/idempotency/persistence";
import { CreateTableCommand, DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { createClient } from "@redis/client";
import type { Context } from "aws-lambda";
import type {
  Execution,
  IdempotentService,
  ServiceOptions,
} from "../../peers/idempotent-service.ts";
import { lambdaContext } from "../../support/lambda.ts";

const TABLE = "idempotency";

export async function openOnRedis(
  options: ServiceOptions,
  execution: Execution,
): Promise<IdempotentService> {
  const client = createClient({ url: options.url });
  client.on("error", () => {});
  await client.connect();
  return openOn(new CachePersistenceLayer({ client }), options, execution);
}

export async function openOnDynamodb(
  options: ServiceOptions,
  execution: Execution,
): Promise<IdempotentService> {
  const clientConfig = configOf(options.url);
  const store = new DynamoDBPersistenceLayer({ tableName: TABLE, clientConfig });
  return openOn(store, options, execution);
}

/** The table of the documentation. */
export async function createTable(url: string): Promise<void> {
  await new DynamoDBClient(configOf(url)).send(
    new CreateTableCommand({
      TableName: TABLE,
      KeySchema: [{ AttributeName: "id", KeyType: "HASH" }],
      AttributeDefinitions: [{ AttributeName: "id", AttributeType: "S" }],
      BillingMode: "PAY_PER_REQUEST",
    }),
  );
}

function configOf(url: string) {
  const endpoint = new URL(url).searchParams.get("endpoint") ?? "";
  const credentials = { accessKeyId: "key", secretAccessKey: "secret" };
  return { endpoint, region: "local", credentials };
}

function openOn(
  persistenceStore: BasePersistenceLayer,
  { ttl }: ServiceOptions,
  { charge }: Execution,
): IdempotentService {
  const charged = async (event: { operation: string }, _: Context) => charge(event.operation);
  const handler = makeIdempotent(charged, { persistenceStore });
  return {
    deliver: (operation) =>
      handler(
        { operation },
        lambdaContext(() => ttl),
      ),
  };
}
