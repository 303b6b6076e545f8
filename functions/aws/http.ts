import type { APIGatewayProxyEventV2, Context } from "aws-lambda";
import { createApp } from "../http/app.ts";
import { bearer } from "../http/auth.ts";
import { httpHandler } from "../http/lambda.ts";
import { lazily } from "../lambda/source.ts";
import { openTelemetryIfRegistered } from "../telemetry/if-registered.ts";
import { log } from "./log.ts";
import { placeOrder, services } from "./services.ts";
import { watched } from "./watched.ts";

const opened = lazily(async () => {
  const { environment, runtime, inventory, locks } = await services();
  const { tokens } = environment;
  const app = createApp({
    // Without a token, everything but /health is refused.
    ...(tokens.length > 0 && { authorize: bearer(tokens) }),
    runtime,
    workflows: [placeOrder],
    inventory,
    locks,
    log: ({ runId: run, ...entry }) => log("request", { ...entry, ...(run && { run }) }),
  });
  const otel = await openTelemetryIfRegistered();
  return httpHandler(otel ? otel.continued(app) : app);
});

/** Runs and stock over HTTP. */
export const handler = watched(async (event: APIGatewayProxyEventV2, context: Context) =>
  (await opened())(event, context),
);
