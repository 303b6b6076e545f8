import { makeIdempotent } from "@aws-lambda-powertools/idempotency";
import type { Context } from "aws-lambda";
import pg from "pg";
import { z } from "zod";
import { sql } from "../../core/database/sql.ts";
import { createRuntime, type Workflow, workflow } from "../../core/steps/index.ts";
import { JournalPersistenceLayer } from "../../functions/powertools/index.ts";
import { open } from "../../infra/open.ts";
import { openReady } from "../../infra/open-ready.ts";
import type { ServerName } from "../../infra/servers/kinds.ts";
import { loadPeer } from "../bench/peers.ts";
import { lambdaContext } from "../support/lambda.ts";
import type { Execution, IdempotentService, ServiceOptions } from "./idempotent-service.ts";
import { versionOf } from "./version-of.ts";

/** A service that the nemesis tries. */
export interface Service {
  readonly server: ServerName;

  /** How it is used. */
  readonly usage: string;

  /** The packages and their versions; this package, if there is none. */
  readonly package?: string;

  /** Whether the effect is a row of the table `effect`, in the transaction of the record. */
  readonly isTransacted?: boolean;

  /** Makes the tables, before any executor opens the service. */
  prepare?(url: string): Promise<void>;
  open(options: ServiceOptions, execution: Execution): Promise<IdempotentService>;
}

type Open = Service["open"];

/** The modules with packages that only comparisons install. */
interface PeerPowertools {
  readonly openOnRedis: Open;
  readonly openOnDynamodb: Open;
  createTable(url: string): Promise<void>;
}

interface PeerDbos {
  makeTables(url: string): Promise<void>;
  readonly openStep: Open;
  readonly openTransaction: Open;
}

const powertools = () => loadPeer<PeerPowertools>("idempotency");
const dbos = () => loadPeer<PeerDbos>("dbos-service");
const POWERTOOLS = versionOf("@aws-lambda-powertools/idempotency");
const IN_PROGRESS = "makeIdempotent around a Lambda handler, effect outside";
const DBOS_RECOVERS =
  "workflow id = operation, an executor id per process, which recovers at its restart";

export const SERVICES = {
  "Powertools on Redis": {
    server: "redis",
    usage: `CachePersistenceLayer, ${IN_PROGRESS}`,
    package: `${POWERTOOLS}, ${versionOf("@redis/client")}`,
    open: async (...options) => (await powertools()).openOnRedis(...options),
  },
  "Powertools on DynamoDB": {
    server: "dynamodb",
    usage: `DynamoDBPersistenceLayer, ${IN_PROGRESS}`,
    package: `${POWERTOOLS}, ${versionOf("@aws-sdk/client-dynamodb")}`,
    prepare: async (url) => (await powertools()).createTable(url),
    open: async (...options) => (await powertools()).openOnDynamodb(...options),
  },
  "Powertools on Lockstep's journal": {
    server: "postgres",
    usage: `JournalPersistenceLayer, ${IN_PROGRESS}`,
    package: `${POWERTOOLS}, this package`,
    prepare,
    open: openPowertools,
  },
  "DBOS, a step": {
    server: "postgres",
    usage: `runStep, effect outside; ${DBOS_RECOVERS}`,
    package: versionOf("@dbos-inc/dbos-sdk"),
    prepare: async (url) => (await dbos()).makeTables(url),
    open: async (...options) => (await dbos()).openStep(...options),
  },
  "DBOS, a transaction": {
    server: "postgres",
    usage: `runTransaction of its data source, effect in it; ${DBOS_RECOVERS}`,
    package: versionOf("@dbos-inc/postgres-datasource"),
    isTransacted: true,
    async prepare(url) {
      await (await dbos()).makeTables(url);
      await prepare(url);
    },
    open: async (...options) => (await dbos()).openTransaction(...options),
  },
  "Lockstep, a step with its fence": {
    server: "postgres",
    usage: "step with a lock, effect outside, where the fence is checked",
    prepare,
    open: openStep,
  },
  "Lockstep, step.tx": {
    server: "postgres",
    usage: "step.tx with a lock, effect in its transaction",
    isTransacted: true,
    prepare,
    open: openTransaction,
  },
} as const satisfies Readonly<Record<string, Service>>;

export type ServiceName = keyof typeof SERVICES;

async function prepare(url: string): Promise<void> {
  await (await openReady(url)).close();
  const client = new pg.Client(url);
  await client.connect();
  await client.query("CREATE TABLE effect (operation TEXT NOT NULL, receipt TEXT NOT NULL)");
  await client.end();
}

/** Counts the effects of an operation that were committed. */
export async function committedEffects(url: string, operation: string): Promise<number> {
  const client = new pg.Client(url);
  await client.connect();
  const { rows } = await client.query("SELECT 1 FROM effect WHERE operation = $1", [operation]);
  await client.end();
  return rows.length;
}

async function openPowertools({ url, ttl }: ServiceOptions, { charge }: Execution) {
  const { journal } = await open(url);
  const persistenceStore = new JournalPersistenceLayer(async () => journal);
  const handler = makeIdempotent(async (event: Event, _: Context) => charge(event.operation), {
    persistenceStore,
  });
  return {
    deliver: (operation: string) =>
      handler(
        { operation },
        lambdaContext(() => ttl),
      ),
  };
}

const Operation = z.object({ operation: z.string() });
type Event = z.infer<typeof Operation>;
type Operations = Workflow<Event, string>;

function openStep(options: ServiceOptions, { charge }: Execution): Promise<IdempotentService> {
  return openRuntime(
    options,
    workflow({ name: "step", version: 1, input: Operation }, async ({ step }, { operation }) =>
      step("charge", { lock: { names: operation, ttl: options.ttl } }, ({ fence }) =>
        charge(operation, String(fence)),
      ),
    ),
  );
}

function openTransaction(
  options: ServiceOptions,
  { chargeWithin }: Execution,
): Promise<IdempotentService> {
  return openRuntime(
    options,
    workflow({ name: "tx", version: 1, input: Operation }, async ({ step }, { operation }) =>
      step.tx("charge", { lock: { names: operation, ttl: options.ttl } }, ({ tx }) =>
        chargeWithin(operation, async (receipt) => {
          await tx.batch([
            sql`INSERT INTO effect (operation, receipt) VALUES (${operation}, ${receipt})`,
          ]);
        }),
      ),
    ),
  );
}

async function openRuntime(
  { url, ttl, executor }: ServiceOptions,
  operations: Operations,
): Promise<IdempotentService> {
  const { journal, locks } = await open(url);
  const runtime = createRuntime({ journal, locks, lease: ttl, owner: executor });
  return {
    async deliver(operation) {
      const outcome = await runtime.run(operations, { operation }, { id: operation });
      if (outcome.status === "completed") return outcome.output;
      throw new Error(`the run is ${outcome.status}`);
    },
  };
}
