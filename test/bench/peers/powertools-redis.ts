import "./global-require.ts";
import { makeIdempotent } from "@aws-lambda-powertools/idempotency";
import { CachePersistenceLayer } from "@aws-lambda-powertools/idempotency/cache";
import { createClient } from "@redis/client";

/** Connected while the module is loaded, as in the documentation. */
const client = await createClient({ url: process.env.REDIS_URL ?? "" }).connect();

/** The idempotency of Powertools on Redis. */
export const handler = makeIdempotent(async (_event: object) => ({ statusCode: 200 }), {
  persistenceStore: new CachePersistenceLayer({ client }),
});
