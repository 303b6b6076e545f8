import { execFile as execFileWithCallback } from "node:child_process";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { promisify } from "node:util";
import { createConnection, type RowDataPacket } from "mysql2/promise";
import { Client } from "pg";
import { PREFIX } from "../../core/stores/redis/client/names.ts";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import type { Command } from "../../core/stores/redis/client/redis.ts";
import { stepClock, steppableClock } from "../../infra/clock/clock.ts";
import { open } from "../../infra/open.ts";
import { openReady } from "../../infra/open-ready.ts";
import { KINDS, type ServerName } from "../../infra/servers/kinds.ts";
import { temporaryFolder } from "../../infra/servers/reap.ts";
import { isSentinel } from "../../infra/servers/redis.ts";
import type { Server, ServerNode } from "../../infra/servers/server.ts";
import { type StartOptions, startServer } from "../../infra/servers/start.ts";
import type { Random } from "../simulation/random.ts";
import { QUICK_ETCD } from "../support/etcd-servers.ts";
import { RedisCluster, type RedisGroup, RedisSentinels } from "../support/redis-group.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";
import * as etcd from "./etcd-faults.ts";
import { CLOCK_STEP } from "./judge.ts";
import { leaderCutOff, Namespaces } from "./namespaces.ts";
import type { Fault, StoreFaults } from "./nemesis.ts";
import { databaseTime, redisTime } from "./server-time.ts";
import { diskFull, junkIn, makeJunkTable, NOT_MOUNTED, SmallDisk } from "./small-disk.ts";
import { zookeeperLeader } from "./zookeeper-leader.ts";

const execFile = promisify(execFileWithCallback);

/** A store on servers of its own, with a proxy in front of each server that can cut the connections. */
export interface CampaignStore extends AsyncDisposable {
  readonly version: string;

  /** The store's URL, through the wires. */
  readonly url: string;

  /** The store's URL without the wires. */
  readonly directUrl: string;
  readonly wires: readonly TcpProxy[];

  /** The server processes that may be killed and frozen. The store survives the loss of any one. */
  readonly nodes: readonly ServerNode[];

  /** What an operator does before a killed process starts again. */
  readonly repair?: (node: ServerNode) => Promise<void>;

  /** Resolves when a group is whole again after a fault. A master that was replaced while it was frozen serves its clients until then. */
  readonly settle?: () => Promise<unknown>;

  /** Ends a server in an orderly way. */
  readonly stopSignal: "SIGTERM" | "SIGINT";

  /** Reads the clock of the first node, in microseconds since 1970. A database is asked by its own client instead. */
  serverTime?(): Promise<number>;

  /** Without a text, the clocks of clients can be stepped. */
  readonly faults: Omit<StoreFaults, "client's clock stepped"> & {
    readonly "client's clock stepped"?: string;
  };
}

type Open = (log: (line: string) => void) => Promise<CampaignStore>;

/** Writes are on disk before they are acknowledged; otherwise a restart would lose locks. */
export const DURABLE_REDIS = ["--appendonly", "yes", "--appendfsync", "always"];

/** Redis itself would leave a part of a transaction that a kill has cut: `repairAof` removes all of it. */
const WHOLE_TRANSACTIONS = [...DURABLE_REDIS, "--aof-load-truncated", "no"];

/** Removes a transaction that a kill has cut from the end of a file, as docs/stores/redis.md tells operators to. */
async function repairAof({ config }: ServerNode): Promise<void> {
  const manifest = join(config.folder, "data/appendonlydir/appendonly.aof.manifest");
  const checking = execFile("redis-check-aof", ["--fix", manifest]);
  checking.child.stdin?.end("y\n");
  // It fails for a node without such a file, as a sentinel.
  await checking.catch(() => {});
}

export const STORES = {
  sqlite: openSqlite,
  mariadb: mysql("mariadb"),
  mysql: mysql("mysql"),
  postgres: postgres("postgres"),
  pgbouncer: postgres("pgbouncer"),
  etcd: openEtcd("etcd"),
  "etcd-cluster": openEtcd("etcd-cluster"),
  redis: openRedis("redis"),
  "redis-cluster": openGroup((options) => RedisCluster.start(options)),
  "redis-sentinel": openGroup((options) => RedisSentinels.start(options)),
  redlock: openRedis("redlock"),
  zookeeper: openZooKeeper("zookeeper"),
  "zookeeper-cluster": openZooKeeper("zookeeper-cluster"),
  dynamodb: openDynamodb,
} as const satisfies Readonly<Record<string, Open>>;

export type CampaignStoreName = keyof typeof STORES;

/** Few machines have MySQL beside MariaDB. */
export const USUAL_STORES = (Object.keys(STORES) as CampaignStoreName[]).filter(
  (name) => name !== "mysql",
);

/** What most stores do not have. */
const NONE: CampaignStore["faults"] = {
  [CLOCK_STEP]: "locks do not follow the wall clock of a server",
  "leader killed": "there is no leader",
  "leader replaced": "there is no leader",
  "leader cut off": "there is no leader",
  compaction: "there is nothing to compact",
  "store full": NOT_MOUNTED,
};

interface Servers extends Pick<StartOptions, "args" | "env"> {
  readonly log: (line: string) => void;
  readonly disk?: SmallDisk | undefined;
  readonly namespaces?: Namespaces | undefined;
}

async function onServers(name: ServerName, { log, disk, namespaces, ...options }: Servers) {
  // A server that does not start leaves no disk mounted, and no namespaces.
  await using parts = new AsyncDisposableStack();
  parts.use(disk);
  parts.use(namespaces);
  const server = await startServer(name, {
    onProgress: log,
    parent: disk?.path,
    place: namespaces && ((port) => namespaces.place(port)),
    ...options,
  });
  const store = parts.use(await overWires(server));
  const all = parts.move();
  return { server, store: { ...store, [Symbol.asyncDispose]: () => all.disposeAsync() } };
}

/** Puts wires in front of a server. */
async function overWires(server: Server): Promise<CampaignStore> {
  const { url, wires } = await wiresTo(server);
  return {
    version: server.version,
    url,
    directUrl: server.url,
    wires,
    nodes: server.nodes,
    stopSignal: "SIGTERM",
    faults: NONE,
    async [Symbol.asyncDispose]() {
      await Promise.all(wires.map((wire) => wire.close()));
      await server.stop();
    },
  };
}

/** Puts a proxy in front of each node that the URL names, and returns the URL through them. */
export async function wiresTo({ nodes, url }: Pick<Server, "nodes" | "url">): Promise<{
  readonly url: string;
  readonly wires: readonly TcpProxy[];
}> {
  const named = nodes.filter(({ config }) => url.includes(`:${config.port}`));
  const wires = await Promise.all(named.map(({ config }) => TcpProxy.to(config.port)));
  const ports = new Map(named.map(({ config }, i) => [config.port, wires[i]?.port]));
  return {
    url: url.replace(/:(\d+)/g, (all, port) =>
      ports.has(Number(port)) ? `:${ports.get(Number(port))}` : all,
    ),
    wires,
  };
}

async function openSqlite(): Promise<CampaignStore> {
  const disk = await SmallDisk.mount();
  const folder = disk ?? (await temporaryFolder("campaign"));
  const file = join(folder.path, "campaign.db");
  const url = `sqlite:${file}`;
  const ownProcesses = "SQLite runs in the processes of its clients";
  const store: CampaignStore = {
    version: `SQLite of Node ${process.versions.node}`,
    url,
    directUrl: url,
    wires: [],
    nodes: [],
    stopSignal: "SIGTERM",
    faults: {
      ...NONE,
      wires: ownProcesses,
      nodes: ownProcesses,
      "client's clock stepped": "all clients of a file share the clock of its machine",
      [CLOCK_STEP]: "all clients of a file share the clock of its machine",
      compaction: async () => {
        using database = new DatabaseSync(file, { timeout: 5_000 });
        database.exec("VACUUM");
        return true;
      },
    },
    [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose](),
  };
  const junk = junkIn(url);
  // The log keeps the size that it once had.
  const shrink = async () => {
    await junk.shrink?.();
    using database = new DatabaseSync(file, { timeout: 5_000 });
    database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  };
  return withTables(store, { "store full": diskFull({ disk, nodes: [], ...junk, shrink }) });
}

/** MariaDB or MySQL, with a clock that can be stepped. */
function mysql(name: "mariadb" | "mysql"): Open {
  return async (log) => {
    const { env, steps } = await steppable(log);
    const disk = await SmallDisk.mount();
    const { server, store } = await onServers(name, { log, disk, ...env });
    const optimize = async () => {
      await using connection = await createConnection(server.url);
      await connection.query(`SET SESSION lock_wait_timeout = ${LOCK_LIMIT / 1_000}`);
      const [rows] = await connection.query<RowDataPacket[]>(`OPTIMIZE TABLE ${TABLES}`);
      return rows.every(({ Msg_type }) => Msg_type !== "error");
    };
    return withTables(store, {
      [CLOCK_STEP]: steps(oneOf(server), () => timeAt(server.url)),
      compaction: optimize,
      "store full": diskFull({ disk, nodes: server.nodes, ...junkIn(server.url) }),
    });
  };
}

/** PostgreSQL with a clock that can be stepped, or a PgBouncer before it, whose wire is the only one. */
function postgres(name: "postgres" | "pgbouncer"): Open {
  return async (log) => {
    const { env, steps } = await steppable(log);
    const disk = await SmallDisk.mount();
    const { server, store } = await onServers(name, { log, disk, ...env });
    const [{ config }] = server.nodes as readonly [ServerNode, ...ServerNode[]];
    const vacuum = async () => {
      const connectionString = KINDS.postgres.url([config.port]);
      const client = new Client({ connectionString, lock_timeout: LOCK_LIMIT });
      await client.connect();
      await client.query(`VACUUM FULL ${TABLES}`).finally(() => client.end());
      return true;
    };
    return withTables(
      { ...store, stopSignal: "SIGINT" },
      {
        [CLOCK_STEP]: steps(oneOf(server), () => timeAt(KINDS.postgres.url([config.port]))),
        compaction: vacuum,
        "store full": diskFull({ disk, nodes: server.nodes, ...junkIn(server.url) }),
      },
    );
  };
}

/** How long a compaction waits for a table, in milliseconds: a connection that died silently may have it for long. */
const LOCK_LIMIT = 5_000;

/** The tables that a campaign fills. */
const TABLES = "lockstep_lock, lockstep_claim, lockstep_stock, lockstep_ledger";

async function withTables(
  store: CampaignStore,
  faults: Partial<CampaignStore["faults"]>,
): Promise<CampaignStore> {
  await using opened = await openReady(store.directUrl);
  if (opened.has("database")) await makeJunkTable(opened.database);
  return { ...store, faults: { ...store.faults, ...faults } };
}

/** DynamoDB Local answers a transaction before its COMMIT has ended, so its process is spared. */
async function openDynamodb(log: (line: string) => void): Promise<CampaignStore> {
  const { store } = await onServers("dynamodb", { log });
  return withTables(
    { ...store, nodes: [] },
    {
      nodes: "DynamoDB Local answers before its COMMIT has ended",
      "store full": "a table of DynamoDB has no largest size",
    },
  );
}

/** A node that starts again reads at most so many transactions: each store that is full leaves large ones. */
const SNAPSHOT_COUNT = 5_000;

function openEtcd(name: "etcd" | "etcd-cluster"): Open {
  return async (log) => {
    const isCluster = name === "etcd-cluster";
    const args = [
      ...QUICK_ETCD[name],
      `--quota-backend-bytes=${etcd.QUOTA}`,
      `--snapshot-count=${SNAPSHOT_COUNT}`,
    ];
    const namespaces = isCluster ? await Namespaces.create() : undefined;
    const { server, store } = await onServers(name, { log, args, namespaces });
    const ports = server.nodes.map(({ config }) => config.port);
    const leader = async () => server.nodes[await etcd.leaderAmong(ports)];
    const faults = {
      ...store.faults,
      compaction: () => etcd.compact(ports),
      "store full": etcd.fill(ports),
      ...(isCluster && {
        "leader killed": leaderKilled(leader),
        "leader cut off": leaderCutOff(namespaces, leader),
        "leader replaced": () => etcd.moveLeader(ports),
      }),
    };
    return { ...store, faults };
  };
}

function openZooKeeper(name: "zookeeper" | "zookeeper-cluster"): Open {
  return async (log) => {
    const isCluster = name === "zookeeper-cluster";
    const disk = await SmallDisk.mount();
    const namespaces = isCluster ? await Namespaces.create() : undefined;
    const { server, store } = await onServers(name, { log, disk, namespaces });
    const leader = () => zookeeperLeader(server.nodes);
    const write = async () => {
      await using opened = await open(server.url);
      await opened.locks.withLock("junk", { ttl: 2_000, wait: 2_000 }, async () => undefined);
    };
    const faults = {
      ...store.faults,
      "store full": diskFull({ disk, nodes: server.nodes, write }),
      compaction: "ZooKeeper has no command for it",
      ...(isCluster && {
        "leader killed": leaderKilled(leader),
        "leader cut off": leaderCutOff(namespaces, leader),
        "leader replaced": "ZooKeeper has no command for it",
      }),
    };
    return { ...store, faults };
  };
}

/** One server, or the independent ones of Redlock, with clocks that can be stepped. */
function openRedis(name: "redis" | "redlock"): Open {
  return async (log) => {
    const { env, steps } = await steppable(log);
    const { server, store } = await onServers(name, { log, args: WHOLE_TRANSACTIONS, ...env });
    const tell = (node: ServerNode, command: Command) => tellRedis(node.config.port, command);
    const timeOf = async (node: ServerNode) => redisTime(await tell(node, ["TIME"]));
    const faults = {
      ...store.faults,
      [CLOCK_STEP]: steps(oneOf(server), timeOf),
      ...redisFaults(store, tell),
    };
    const serverTime = () => timeOf(server.nodes[0] as ServerNode);
    return { ...store, faults, serverTime, repair: repairAof };
  };
}

async function tellRedis(port: number, command: Command): Promise<unknown> {
  await using redis = redisClient({ host: "127.0.0.1", port });
  return await redis.call(command);
}

/** How long a group may take to be whole again, and a server to rewrite its file, in milliseconds. */
const SETTLING = 60_000;

/** A group that replaces a lost master. Its clients connect to the addresses that its nodes know, and not to wires. */
function openGroup(start: (options: StartOptions) => Promise<RedisGroup>): Open {
  return async (log) => {
    const { env, steps } = await steppable(log);
    const group = await start({
      onProgress: log,
      ...env,
      args: (config, all) => {
        const hasSentinels = all.length === KINDS["redis-sentinel"].size;
        return hasSentinels && isSentinel(config, all) ? [] : WHOLE_TRANSACTIONS;
      },
    });
    const { version, url, nodes } = group.server;
    const leader = () => group.masterOf(PREFIX);
    const timeOf = async (node: ServerNode) => redisTime(await group.tell(node, "TIME"));
    const replace = async () => {
      await group.failOver(PREFIX);
      return true;
    };
    const replica = async () => group.replicaOf(await leader());
    const settle = () => until(() => replica().catch(() => undefined), SETTLING);
    const replicated = `${url}?replicas=1`;
    return {
      ...{ version, url: replicated, directUrl: replicated, wires: [], nodes, repair: repairAof },
      settle,
      stopSignal: "SIGTERM",
      serverTime: async () => timeOf(await leader()),
      faults: {
        ...NONE,
        wires: "clients connect to the addresses that the nodes announce",
        // The locks go by the clock of the master.
        [CLOCK_STEP]: steps(leader, timeOf),
        "leader killed": leaderKilled(leader, repairAof),
        "leader replaced": replace,
        "leader cut off": "not built: these servers have one address for clients and nodes",
        ...redisFaults(group, (node, command) => group.tell(node, ...command)),
      },
      [Symbol.asyncDispose]: () => group[Symbol.asyncDispose](),
    };
  };
}

function redisFaults(
  { nodes }: Pick<CampaignStore, "nodes">,
  tell: (node: ServerNode, command: Command) => Promise<unknown>,
): Pick<StoreFaults, "compaction" | "store full"> {
  const tellAll = (...command: Command) => Promise.all(nodes.map((node) => tell(node, command)));
  return {
    compaction: async () => {
      await tellAll("BGREWRITEAOF");
      const ended = async () => {
        const infos = (await tellAll("INFO", "persistence")).map(String);
        const isUnderWay = infos.some((info) => /aof_rewrite_(in_progress|scheduled):1/.test(info));
        return !isUnderWay && infos;
      };
      const infos = await until(() => ended().catch(() => undefined), SETTLING);
      return infos.every((info) => info.includes("aof_last_bgrewrite_status:ok"));
    },
    "store full": async ({ pause }) => {
      await tellAll("CONFIG", "SET", "maxmemory", "1");
      const refused = await Promise.allSettled(
        nodes.map((node) => tell(node, ["SET", "full", "1"])),
      );
      await pause();
      await until(() => tellAll("CONFIG", "SET", "maxmemory", "0").catch(() => undefined));
      return refused.some(
        (answer) => answer.status === "rejected" && String(answer.reason).includes("memory"),
      );
    },
  };
}

/** Kills the leader, and starts it again when another one leads. */
function leaderKilled(
  leader: () => Promise<ServerNode | undefined>,
  repair: CampaignStore["repair"] = async () => {},
): Fault {
  return async ({ ready }) => {
    const old = await until(() => leader().catch(() => undefined));
    await ready?.();
    await old.kill("SIGKILL");
    const replaced = async () => ((await leader()) ?? old) !== old;
    const isReplaced = await until(() => replaced().catch(() => false), 30_000).catch(() => false);
    await repair(old);
    await old.start();
    return isReplaced;
  };
}

type TimeOf = (node: ServerNode) => Promise<number>;
type PickNode = (random: Random) => ServerNode | Promise<ServerNode>;

function oneOf({ nodes }: Pick<Server, "nodes">): PickNode {
  return (random) => random.pick(nodes);
}

/** Returns the environment of servers whose clocks can be stepped, and the fault that steps that of one node. */
async function steppable(log: (line: string) => void) {
  const env = await steppableClock(log).catch((error: Error) => error);
  if (env instanceof Error) return { env: {}, steps: () => env.message };
  const steps = (pick: PickNode, timeOf: TimeOf): Fault => {
    return async ({ random, pause, ready }) => {
      const node = await pick(random);
      const ahead = random.between(2_000, 10_000);
      const skewOf = async () => (await timeOf(node)) / 1_000 - Date.now();
      const before = await skewOf();
      await ready?.();
      await stepClock(node, ahead);
      const stepped = (await skewOf()) - before;
      await pause();
      await stepClock(node, 0);
      return stepped > ahead / 2;
    };
  };
  return { env: { env }, steps };
}

/** Reads the clock of a database. */
async function timeAt(url: string): Promise<number> {
  await using opened = await openReady(url);
  return databaseTime(opened.database);
}
