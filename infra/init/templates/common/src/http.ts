import type { APIGatewayProxyEventV2, Context } from "aws-lambda";
import { bearer, createApp, httpHandler } from "lockstep/http";
import { instrument, withSecret } from "lockstep/lambda";
import { runtime } from "./runtime.ts";
import { locks, shop } from "./stores.ts";
import { log, metrics } from "./telemetry.ts";
import { workflows } from "./workflows.ts";

/** The ARN of a secret with the bearer tokens, separated by spaces: two of them during a rotation. */
const { TOKEN_SECRET = "" } = process.env;

const authorize = withSecret(TOKEN_SECRET, async (tokens) =>
  Object.assign(bearer(tokens.split(/\s+/)), { async [Symbol.asyncDispose]() {} }),
);

/** Serves runs and stock. */
export const handler = instrument(async (event: APIGatewayProxyEventV2, context: Context) => {
  const { inventory } = await shop();
  const app = createApp({
    runtime: await runtime(),
    locks: await locks(),
    authorize: await authorize(),
    log: (entry) => log("info", "request", entry),
    ...{ workflows, inventory },
  });
  return httpHandler(app)(event, context);
}, metrics);
