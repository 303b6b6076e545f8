import { sum } from "simple-statistics";
import { asNumber, asText, type Database, raw, sql } from "../../core/database/sql.ts";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import type { Dynamodb } from "../../core/stores/dynamodb/client/dynamodb.ts";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import type { Redis } from "../../core/stores/redis/client/redis.ts";
import { type AnyStore, open } from "../../infra/open.ts";
import { type Host, parseStoreUrl } from "../../infra/store-url.ts";
import { srvr } from "../campaign/zookeeper-leader.ts";

/** What a store has at one time. */
export interface StoreSize {
  /** Rows of a database, keys of etcd or Redis, nodes of ZooKeeper, items of DynamoDB. */
  readonly records: number;

  /** Of etcd. */
  readonly leases?: number;
}

/** Counts what a store on servers of its own has. */
export async function sizeOf(url: string): Promise<StoreSize> {
  const { scheme, network } = parseStoreUrl(url);
  const hosts = network?.hosts ?? [];
  switch (scheme) {
    case "etcd":
    case "etcd+http":
      return sizeOfEtcd(hosts[0] as Host);
    case "zookeeper":
      return { records: await countNodes(hosts[0] as Host) };
    case "redlock":
    case "redis+cluster":
      return { records: sum(await Promise.all(hosts.map(countKeysOfMaster))) };
  }
  await using opened = await open(url);
  return { records: await countRecords(opened, scheme) };
}

async function countRecords(opened: AnyStore, scheme: string): Promise<number> {
  if (opened.has("redis")) return countKeys(opened.redis);
  if (opened.has("dynamodb")) return countItems(opened.dynamodb);
  return countRows(opened.database, scheme);
}

async function countRows(database: Database, scheme: string): Promise<number> {
  const tables =
    scheme === "sqlite"
      ? sql`SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'lockstep%'`
      : sql`SELECT table_name AS name FROM information_schema.tables WHERE table_name LIKE 'lockstep%'`;
  let records = 0;
  for (const { name } of await database.read(tables)) {
    const [row] = await database.read(sql`SELECT COUNT(*) AS found FROM ${raw(asText(name))}`);
    records += asNumber(row?.found);
  }
  return records;
}

async function countKeys(redis: Redis): Promise<number> {
  return Number(await redis.call(["DBSIZE"]));
}

/** A replica has the keys of its master, which are not counted twice. */
async function countKeysOfMaster({ host, port = 6_379 }: Host): Promise<number> {
  await using redis = redisClient({ host, port });
  const [role] = (await redis.call(["ROLE"])) as readonly string[];
  return role === "master" ? await countKeys(redis) : 0;
}

/** Counts all nodes of the server, with the few that a new server has. */
async function countNodes({ host, port = 2_181 }: Host): Promise<number> {
  const answer = await srvr(port).catch(() => "");
  const [, nodes] = /^Node count: (\d+)/m.exec(answer) ?? [];
  if (nodes !== undefined) return Number(nodes);
  throw new StoreUnavailableError(`zookeeper at ${host}:${port}`, "srvr tells no number of nodes");
}

async function countItems(dynamodb: Dynamodb): Promise<number> {
  let items = 0;
  for await (const page of dynamodb.scan({ filter: "attribute_exists(#pk)", values: {} })) {
    items += page.length;
  }
  return items;
}

async function sizeOfEtcd({ host, port = 2_379 }: Host): Promise<StoreSize> {
  const ask = async (path: string, body: object) => {
    const answer = await fetch(`http://${host}:${port}/v3/${path}`, {
      method: "POST",
      body: JSON.stringify(body),
    });
    return (await answer.json()) as {
      readonly count?: string;
      readonly leases?: readonly object[];
    };
  };
  // All keys: from the key 0 to the end.
  const all = Buffer.from("\0").toString("base64");
  const { count = "0" } = await ask("kv/range", { key: all, range_end: all, count_only: true });
  const { leases = [] } = await ask("lease/leases", {});
  return { records: Number(count), leases: leases.length };
}
