import type { APIGatewayProxyEventV2, Context } from "aws-lambda";
import { createApp } from "../http/app.ts";
import { bearer } from "../http/auth.ts";
import { httpHandler } from "../http/lambda.ts";
import { lazy } from "../invocation/provider.ts";
import { instrument } from "../lambda/instrument.ts";
import { openTelemetryIfRegistered } from "../telemetry/if-registered.ts";
import { log } from "./log.ts";
import { metrics } from "./metrics.ts";
import { placeOrder, runtime } from "./runtime.ts";
import { services } from "./services.ts";

const openHandler = lazy(async () => {
  const { environment, inventory, locks } = await services();
  const { tokens } = environment;
  const app = createApp({
    // Without tokens, every request but /health is refused.
    ...(tokens.length > 0 && { authorize: bearer(tokens) }),
    runtime: await runtime(),
    workflows: [placeOrder],
    inventory,
    locks,
    onError: (error, { runId: run, ...at }) =>
      log("failure", { ...at, ...(run && { run }), error }, "warn"),
    log: ({ runId: run, ...entry }) => log("request", { ...entry, ...(run && { run }) }),
  });
  const otel = await openTelemetryIfRegistered();
  return httpHandler(otel ? otel.continueTraces(app) : app);
});

/** Serves runs and stock over HTTP. */
export const handler = instrument(
  async (event: APIGatewayProxyEventV2, context: Context) => (await openHandler())(event, context),
  metrics,
);
