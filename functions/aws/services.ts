import type { Database } from "../../core/database/sql.ts";
import type { Journal } from "../../core/journal/journal.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";
import { open } from "../../infra/open.ts";
import { lazy } from "../invocation/provider.ts";
import { openTelemetryIfRegistered } from "../telemetry/if-registered.ts";
import { incidentTelemetry } from "../telemetry/incidents.ts";
import { logTelemetry } from "../telemetry/log.ts";
import { metricTelemetry } from "../telemetry/metrics.ts";
import { combineTelemetry, type Telemetry } from "../telemetry/telemetry.ts";
import { type FunctionEnvironment, readEnvironment } from "./environment.ts";
import { log } from "./log.ts";
import { metrics } from "./metrics.ts";

/** The services that all functions share. */
export interface Services {
  readonly environment: FunctionEnvironment;
  readonly telemetry: Telemetry;
  readonly database: Database;
  readonly inventory: TransactionalInventory;
  readonly journal: Journal;
  readonly locks: LockStore;
}

/** Opens the services in the first invocation, and reuses them in the next ones. */
export const services: () => Promise<Services> = lazy(async () => {
  const environment = await readEnvironment();
  let locks: LockStore | undefined;
  const telemetry = await createTelemetry(() => locks);
  const options = { onEvent: telemetry.lock };
  const opened = await open(environment.store, options);
  if (!opened.has("database"))
    throw new TypeError("LOCKSTEP_STORE must be the URL of a SQL database");
  const { database, journal, locks: own } = opened;
  const { store, locks: locksUrl = store } = environment;
  locks = locksUrl === store ? own : (await open(locksUrl, options)).locks;
  const inventory = sqlInventory(database, { onEvent: telemetry.stock });
  return { environment, telemetry, database, inventory, journal, locks };
});

/** Spans come first, so that the log lines of a step are written inside its span. */
async function createTelemetry(locks: () => LockStore | undefined): Promise<Telemetry> {
  const otel = await openTelemetryIfRegistered();
  const logs = logTelemetry((level, what, fields) => log(what, fields, level));
  return combineTelemetry(
    ...(otel ? [otel.openTelemetry()] : []),
    logs,
    metricTelemetry(metrics.measure),
    incidentTelemetry(locks),
  );
}
