import { makeIdempotent } from "@aws-lambda-powertools/idempotency";
import { CachePersistenceLayer } from "@aws-lambda-powertools/idempotency/cache";
import { createClient } from "@redis/client";

/** As its documentation has it: connected while the module is loaded. */
const client = await createClient({ url: process.env.REDIS_URL ?? "" }).connect();

/** Powertools' idempotency on Redis. */
export const handler = makeIdempotent(async (_event: object) => ({ statusCode: 200 }), {
  persistenceStore: new CachePersistenceLayer({ client }),
});
