/** A program that opens a store with the arguments in SETTINGS, and is bundled. */
export interface BundledProgram {
  /** The import and the call that opens the store. */
  readonly imports: string;
  readonly open: string;

  /** The optional package that the store needs. */
  readonly peer?: string;

  /** Whether the package is not a part of the bundle, but must lie beside it. */
  readonly isPeerBeside?: boolean;
}

/** A program per store, and per way of opening a store. */
export const PROGRAMS = {
  memory: { imports: 'import { openMemory } from "lockstep/memory";', open: "openMemory()" },
  sqlite: {
    imports: 'import { openSqlite } from "lockstep/sqlite";',
    open: "openSqlite(...settings)",
  },
  mysql: {
    imports: 'import { openMysql } from "lockstep/mysql";',
    open: "openMysql(...settings)",
    peer: "mysql2",
  },
  postgres: {
    imports: 'import { openPostgres } from "lockstep/postgres";',
    open: "openPostgres(...settings)",
    peer: "pg",
  },
  dynamodb: {
    imports: 'import { openDynamodb } from "lockstep/dynamodb";',
    open: "openDynamodb(...settings)",
  },
  etcd: {
    imports: 'import { openEtcd } from "lockstep/etcd";',
    open: "openEtcd(...settings)",
  },
  "a client of etcd3": {
    imports: 'import { openEtcd } from "lockstep/etcd";',
    // The settings of a client are all that is read of it.
    open: "openEtcd({ kv: {}, leaseClient: {}, close() {}, options: settings[0] }, settings[1])",
    peer: "etcd3",
    isPeerBeside: true,
  },
  "etcd's gateway": {
    imports: 'import { openEtcdGateway } from "lockstep/etcd";',
    open: "openEtcdGateway(...settings)",
  },
  redis: {
    imports: 'import { openRedis } from "lockstep/redis";',
    open: "openRedis(...settings)",
    peer: "ioredis",
  },
  "redis over HTTP": {
    imports: 'import { openRedisRest } from "lockstep/edge";',
    open: "openRedisRest(...settings)",
  },
  redlock: {
    imports: 'import { openRedlock } from "lockstep/redlock";',
    open: "openRedlock(...settings)",
    peer: "ioredis",
  },
  zookeeper: {
    imports: 'import { openZooKeeper } from "lockstep/zookeeper";',
    open: "openZooKeeper(...settings)",
  },
  "a URL": {
    imports: 'import { open } from "lockstep/open";',
    open: "open(...settings)",
    peer: "mysql2",
  },
} as const satisfies Record<string, BundledProgram>;

/** Returns the source of a program that prints what `prove` answers, as JSON. */
export function sourceOf({ imports, open }: BundledProgram): string {
  return `${imports}
import { prove } from "./prove.js";
const settings = JSON.parse(process.env.SETTINGS);
prove(async () => ${open}).then((answer) => console.log(JSON.stringify(answer)));
`;
}

/** Uses all that a store has. Answers with the name and the code of an error, which minifying must not change. */
export const PROVE = `
import { migrate } from "lockstep/mysql";
import { createRuntime, workflow } from "lockstep/steps";

const input = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } };
const greet = workflow({ name: "greet", version: 1, input }, (ctx, { who }) =>
  ctx.step("greet", {}, async () => "hello " + who),
);

export async function prove(open) {
  try {
    const store = await open();
    try {
      return await use(store);
    } finally {
      await store.close();
    }
  } catch ({ name, message }) {
    return { name, message };
  }
}

async function use(store) {
  const has = (part) => part in store && !(store.has && !store.has(part));
  if (has("database")) await migrate(store.database);
  const held = await store.locks.lock("bundled", { ttl: "10s", wait: "5s" });
  const { name, code } = await store.locks
    .lock("bundled", { ttl: "10s", wait: "100ms" })
    .catch((error) => error);
  return {
    busy: [name, code],
    released: await held.unlock(),
    ...(has("inventory") && { sold: await sell(store) }),
    ...(has("journal") && { run: await run(store) }),
  };
}

async function sell({ inventory }) {
  await inventory.set({ sku: "bundled", quantity: 3, operationId: "count" });
  const sale = await inventory.decrement({ sku: "bundled", quantity: 1, operationId: "sale" });
  const unknown = await inventory
    .decrement({ sku: "no such", quantity: 1, operationId: "other" })
    .catch((error) => error);
  return [sale.remaining, unknown.name, unknown.code];
}

async function run({ journal, locks }) {
  const runtime = createRuntime({ journal, locks });
  const { status, output } = await runtime.run(greet, { who: "you" }, { id: "greet-you" });
  return [status, output];
}
`;
