import type { Database } from "../../core/database/sql.ts";
import { observed } from "../../core/inventory/observed.ts";
import { type SqlInventory, sqlInventory } from "../../core/inventory/sql.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { createRuntime, type Runtime } from "../../core/steps/runtime.ts";
import { open } from "../../infra/open.ts";
import { type FunctionEnvironment, readEnvironment } from "../environment.ts";
import { lazily } from "../lambda/source.ts";
import { openTelemetryIfRegistered } from "../telemetry/if-registered.ts";
import { logged } from "../telemetry/logged.ts";
import { measured } from "../telemetry/measured.ts";
import { type Telemetry, together } from "../telemetry/telemetry.ts";
import { log } from "./log.ts";
import { placeOrderFrom } from "./place-order.ts";
import { stockReportFrom } from "./stock-report.ts";
import { measure } from "./watched.ts";

/** What the functions of this service work with. */
export interface Services {
  readonly environment: FunctionEnvironment;
  readonly database: Database;
  readonly inventory: SqlInventory;
  readonly locks: LockStore;
  readonly runtime: Runtime;
}

/** Opened by the first event of an environment, and kept for the next ones. */
export const services: () => Promise<Services> = lazily(async () => {
  const environment = await readEnvironment();
  const telemetry = await tellAll();
  const options = { onEvent: telemetry.lock };
  const { database, journal, locks: own } = await open(environment.store, options);
  if (!database || !journal) throw new TypeError("LOCKSTEP_STORE must be a database");
  const { store, locks: apart = store } = environment;
  const locks = apart === store ? own : (await open(apart, options)).locks;
  const workflows = [placeOrder, stockReport];
  const owner = ownerOf(process.env);
  const runtime = createRuntime({ journal, locks, workflows, owner, ...telemetry.runtime });
  const inventory = observed(sqlInventory(database), telemetry.stock);
  return { environment, database, inventory, locks, runtime };
});

const inventory = async () => (await services()).inventory;

export const placeOrder = placeOrderFrom(inventory);
export const stockReport = stockReportFrom(inventory);

export const runtime = async (): Promise<Runtime> => (await services()).runtime;

/** Spans around all the rest: so the lines of the log are written in theirs. */
async function tellAll(): Promise<Telemetry> {
  const otel = await openTelemetryIfRegistered();
  const lines = logged((level, what, fields) => log(what, fields, level));
  return together(...(otel ? [otel.openTelemetry()] : []), lines, measured(measure));
}

function ownerOf({
  AWS_LAMBDA_FUNCTION_NAME = "function",
  AWS_LAMBDA_LOG_STREAM_NAME = "",
}): string {
  return `${AWS_LAMBDA_FUNCTION_NAME}/${AWS_LAMBDA_LOG_STREAM_NAME}`.slice(0, 200);
}
