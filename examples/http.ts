import { bearer, createApp, httpHandler } from "lockstep/http";
import { openSqlite } from "lockstep/sqlite";
import { createRuntime } from "lockstep/steps";
import makeOrder from "./order.mjs";

const { locks, journal, inventory } = await openSqlite("shop.db");
const workflows = [makeOrder({ inventory })];
const app = createApp({
  runtime: createRuntime({ journal, locks, workflows }),
  ...{ workflows, inventory, locks },
  authorize: bearer([process.env.LOCKSTEP_TOKEN ?? ""]), // or gatewayAuthorizer, or a function of yours
  log: (entry) => console.log(JSON.stringify(entry)),
});
export const handler = httpHandler(app);
