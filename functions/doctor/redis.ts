import { StoreRefusedError } from "../../core/lock/errors.ts";
import { hostLiteral } from "../../core/stores/host-literal.ts";
import type { Redis } from "../../core/stores/redis/client/redis.ts";
import { open } from "../../infra/open.ts";
import { type Finding, judgeEach, judgeVersion, note, ok, problem } from "./finding.ts";

const SETTINGS = ["appendonly", "appendfsync", "aof-load-truncated", "maxmemory-policy"] as const;

/** Reads the server's version and role, and its settings of durability and eviction. */
export async function examineRedis(
  redis: Redis,
  url: string,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const info = await readInfo(redis, signal);
  const read = (field: string) => new RegExp(`^${field}:(\\S+)`, "m").exec(info ?? "")?.[1] ?? "";
  return [
    info === undefined
      ? note("version", "the user may not call INFO: version and role are unknown", "grant +info")
      : judgeVersion("Redis", read("redis_version"), "7.0"),
    ...(read("role") === "slave"
      ? [problem("role", "the server is a replica", "use the primary's URL")]
      : []),
    ...(read("cluster_enabled") === "1"
      ? [await examineCluster(redis, signal), ...(await examineMasters(redis, url, signal))]
      : await examineSettings(redis, signal)),
  ];
}

/** Whether the user's ACL, or a proxy, does not have the command. */
function isForbidden(error: unknown): boolean {
  return error instanceof StoreRefusedError && /NOPERM|unknown command/i.test(error.message);
}

/** Resolves to undefined if the user's ACL has no INFO. */
async function readInfo(redis: Redis, signal: AbortSignal): Promise<string | undefined> {
  try {
    return String(await redis.call(["INFO"], { reads: true, signal }));
  } catch (error) {
    if (!isForbidden(error)) throw error;
    return undefined;
  }
}

const SLOTS = 16_384;

const SERVE_ALL = "give every slot to a node that runs: redis-cli --cluster fix HOST:PORT";

/** The advice for the errors of Redis. */
export const REDIS_CURES: Readonly<Record<string, string>> = {
  CLUSTERDOWN: SERVE_ALL,
  LOADING: "wait until it has loaded its data",
  MISCONF: "look at its log: the disk is full, or the fork has failed",
  OOM: "raise maxmemory",
};

/** Reads whether the cluster serves all slots: a name whose slot is not served cannot be locked. */
async function examineCluster(redis: Redis, signal: AbortSignal): Promise<Finding> {
  const info = String(await redis.call(["CLUSTER", "INFO"], { reads: true, signal }));
  const read = (field: string) => new RegExp(`^${field}:(\\S+)`, "m").exec(info)?.[1] ?? "";
  const served = Number(read("cluster_slots_ok"));
  const text = `${served} of ${SLOTS} slots are served, by ${read("cluster_size")} masters`;
  if (served === SLOTS && read("cluster_state") === "ok") return ok("cluster", text);
  return problem("cluster", text, SERVE_ALL);
}

/** Reads the settings of each master of a cluster, under the login of the cluster's URL. */
async function examineMasters(
  redis: Redis,
  url: string,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const slots = await redis.call(["CLUSTER", "SLOTS"], { reads: true, signal });
  const masters = mastersIn(slots as readonly SlotRange[]);
  const [, scheme, login, options] =
    /^(rediss?)[^:]*:\/\/([^/?#]*@)?[^/?#]*(.*)$/is.exec(url) ?? [];
  const own = (options ?? "").replace(/(?<=[?&])partitions=\d+&?/i, "");
  return judgeEach(masters, async (master) => {
    await using node = await open(`${scheme}://${login ?? ""}${master}${own}`);
    return node.has("redis") ? await examineSettings(node.redis, signal) : [];
  });
}

/** One of the ranges that CLUSTER SLOTS answers with. */
type SlotRange = readonly [from: number, to: number, master: readonly [host: string, port: number]];

/** Returns the addresses of the masters, as URLs have them. */
export function mastersIn(slots: readonly SlotRange[]): readonly string[] {
  return [...new Set(slots.map(([, , [host, port]]) => `${hostLiteral(host)}:${port}`))];
}

async function examineSettings(redis: Redis, signal: AbortSignal): Promise<readonly Finding[]> {
  let reply: unknown;
  try {
    reply = await redis.call(["CONFIG", "GET", ...SETTINGS], { reads: true, signal });
  } catch (error) {
    if (!isForbidden(error)) throw error;
    return [note("durability", "the server does not show its settings", "look at them yourself")];
  }
  const words = reply as readonly string[];
  const setting = (name: (typeof SETTINGS)[number]) => words[words.indexOf(name) + 1] ?? "";
  return [
    judgePersistence(setting("appendonly"), setting("appendfsync")),
    ...judgeTruncation(setting("appendonly"), setting("aof-load-truncated")),
    judgeEviction(setting("maxmemory-policy")),
  ];
}

function judgePersistence(appendonly: string, appendfsync: string): Finding {
  const cure = "set appendonly yes and appendfsync always";
  const risk = "two holders are possible until the resource checks the fence";
  if (appendonly !== "yes") {
    return problem("durability", `appendonly no: a restart loses the locks; ${risk}`, cure);
  }
  if (appendfsync === "always") return ok("durability", "appendfsync always: no lock is lost");
  const lost = `appendfsync ${appendfsync}: a crash loses the last writes; ${risk}`;
  return appendfsync === "no" ? problem("durability", lost, cure) : note("durability", lost, cure);
}

/** Redis shortens a transaction that a kill has cut, and executes its rest with the next transaction after another restart. */
function judgeTruncation(appendonly: string, truncated: string): readonly Finding[] {
  if (appendonly !== "yes" || truncated !== "yes") return [];
  const risk =
    "aof-load-truncated yes: after a kill in the middle of a write, the ledger may have entries twice";
  const cure =
    "set aof-load-truncated no; a start that is refused then needs redis-check-aof --fix";
  return [note("append-only file", risk, cure)];
}

function judgeEviction(policy: string): Finding {
  if (policy === "noeviction") return ok("eviction", "maxmemory-policy noeviction");
  const risk = policy.startsWith("volatile") ? "locks" : "locks, fences and stock";
  const problemText = `maxmemory-policy ${policy}: when memory is short, the server drops ${risk}`;
  return problem("eviction", problemText, "set maxmemory-policy noeviction");
}
