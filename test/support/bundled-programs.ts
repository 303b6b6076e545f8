/** A program that is bundled. The arguments in SETTINGS open its store. */
export interface BundledProgram {
  readonly imports: string;

  /** The call that opens a store, or what a program without one answers. */
  readonly open?: string;
  readonly answer?: string;

  /** The optional package that the program needs. */
  readonly peer?: string;

  /** Whether the package is not a part of the bundle, but must lie beside it. */
  readonly isPeerBeside?: boolean;
}

/** A program per store, per way of opening a store, and per other entry with an optional package. */
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
  powertools: {
    imports: `import { openMemory } from "lockstep/memory";
import { JournalPersistenceLayer } from "lockstep/powertools";

async function useLayer() {
  const { journal } = await openMemory();
  const layer = new JournalPersistenceLayer(async () => journal);
  await layer.saveInProgress({ order: 7 });
  await layer.saveSuccess({ order: 7 }, { paid: 40 });
  const record = await layer.getRecord({ order: 7 });
  return [record.getStatus(), record.responseData];
}`,
    answer: "useLayer()",
    peer: "@aws-lambda-powertools/idempotency",
  },
  "the page of HTTP": {
    imports: 'import { swaggerPage } from "lockstep/http/node";',
    answer: "swaggerPage().then(({ files }) => [...files.keys()].sort())",
    peer: "swagger-ui-dist",
    isPeerBeside: true,
  },
} as const satisfies Record<string, BundledProgram>;

/** Returns the source of a program that prints its answer, or its error, as JSON. */
export function sourceOf({ imports, open, answer }: BundledProgram): string {
  return `${imports}
import { answerOf, prove } from "./prove.js";
const settings = JSON.parse(process.env.SETTINGS);
answerOf(async () => ${answer ?? `prove(await ${open})`}).then((answer) =>
  console.log(JSON.stringify(answer)),
);
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

export async function answerOf(program) {
  try {
    return await program();
  } catch ({ name, message }) {
    return { name, message };
  }
}

export async function prove(store) {
  try {
    return await use(store);
  } finally {
    await store.close();
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
