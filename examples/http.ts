import { bearer, createApp, httpHandler } from "lockstep/http";
import { lazy } from "lockstep/lambda";
import { openMysql } from "lockstep/mysql";
import { createRuntime } from "lockstep/steps";
import { logTelemetry } from "lockstep/telemetry";
import makeOrder from "./order.mjs";

// The first request opens the store, later ones find it. For a secret of RDS: withSecret and rdsOptions.
const open = lazy(async () => {
  const login = { host: "127.0.0.1", port: 3306, user: "root", database: "shop" };
  const { locks, journal, inventory } = await openMysql(login);
  const workflows = [makeOrder({ inventory })];
  const app = createApp({
    runtime: createRuntime({ journal, locks, workflows, ...logTelemetry().runtime }),
    ...{ workflows, inventory, locks },
    authorize: bearer([process.env.LOCKSTEP_TOKEN ?? ""]), // or gatewayAuthorizer, or a function of yours
    log: (entry) => console.log(JSON.stringify(entry)),
  });
  return httpHandler(app);
});

type Handler = ReturnType<typeof httpHandler>;
export const handler: Handler = async (event, context) => (await open())(event, context);
