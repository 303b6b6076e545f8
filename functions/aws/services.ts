import type { Database } from "../../core/database/sql.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { type SqlInventory, sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { open } from "../../infra/open.ts";
import { lazy } from "../invocation/provider.ts";
import { openTelemetryIfRegistered } from "../telemetry/if-registered.ts";
import { logTelemetry } from "../telemetry/log.ts";
import { metricTelemetry } from "../telemetry/metrics.ts";
import { combineTelemetry, type Telemetry } from "../telemetry/telemetry.ts";
import { type FunctionEnvironment, readEnvironment } from "./environment.ts";
import { log } from "./log.ts";
import { metrics } from "./metrics.ts";
import { placeOrderFrom, stockReportFrom } from "./workflows.ts";

/** The services that all functions share. */
export interface Services {
  readonly environment: FunctionEnvironment;
  readonly database: Database;
  readonly inventory: SqlInventory;
  readonly locks: LockStore;
  readonly runtime: Runtime;
}

/** Opens the services in the first invocation, and reuses them in the next ones. */
export const services: () => Promise<Services> = lazy(async () => {
  const environment = await readEnvironment();
  const telemetry = await createTelemetry();
  const options = { onEvent: telemetry.lock };
  const opened = await open(environment.store, options);
  if (!opened.has("database"))
    throw new TypeError("LOCKSTEP_STORE must be the URL of a SQL database");
  const { database, journal, locks: own } = opened;
  const { store, locks: locksUrl = store } = environment;
  const locks = locksUrl === store ? own : (await open(locksUrl, options)).locks;
  const workflows = [placeOrder, stockReport];
  const owner = ownerOf(process.env);
  const runtime = createRuntime({ journal, locks, workflows, owner, ...telemetry.runtime });
  const inventory = sqlInventory(database, { onEvent: telemetry.stock });
  return { environment, database, inventory, locks, runtime };
});

const inventory = async () => (await services()).inventory;

export const placeOrder = placeOrderFrom(inventory);
export const stockReport = stockReportFrom(inventory);

export const runtime = async (): Promise<Runtime> => (await services()).runtime;

/** Spans come first, so that the log lines of a step are written inside its span. */
async function createTelemetry(): Promise<Telemetry> {
  const otel = await openTelemetryIfRegistered();
  const logs = logTelemetry((level, what, fields) => log(what, fields, level));
  return combineTelemetry(
    ...(otel ? [otel.openTelemetry()] : []),
    logs,
    metricTelemetry(metrics.measure),
  );
}

function ownerOf({
  AWS_LAMBDA_FUNCTION_NAME = "function",
  AWS_LAMBDA_LOG_STREAM_NAME = "",
}): string {
  return `${AWS_LAMBDA_FUNCTION_NAME}/${AWS_LAMBDA_LOG_STREAM_NAME}`.slice(0, 200);
}
