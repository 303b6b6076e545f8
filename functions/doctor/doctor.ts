import { median } from "simple-statistics";
import { sql } from "../../core/database/sql.ts";
import { deadline, race } from "../../core/lock/abort.ts";
import { hasCode, StoreUnavailableError } from "../../core/lock/errors.ts";
import { usualTtl } from "../../core/lock/request.ts";
import { elapsedSince, instant, type Millis } from "../../core/lock/time.ts";
import type { AnyStore } from "../../infra/open.ts";
import { DYNAMODB_CURES, examineDynamodb, readDynamodbClock } from "./dynamodb.ts";
import { examineEtcd } from "./etcd.ts";
import { type Finding, note, ok, problem } from "./finding.ts";
import { examineRedis, REDIS_CURES } from "./redis.ts";
import { examineRedlock } from "./redlock.ts";
import { examineDatabase, readSqlClock } from "./sql.ts";
import { examineZooKeeper } from "./zookeeper.ts";

/** The longest examination: a server that hangs is reported. */
const LONGEST: Millis = 10_000;

/** The longest wait for the first answer: a client that tries again until then says why. */
const FIRST: Millis = 5_000;

/** How often a call is measured. */
const REPEATS = 5;

/** A skew above this confuses readers who compare the logs of two machines. */
const LARGE_SKEW: Millis = 1_000;

/** Examines the store of a URL, and yields each finding as soon as it is known. Takes one lock of its own for a moment. */
export async function* examine(store: AnyStore, url: string): AsyncGenerator<Finding> {
  const silent = () =>
    new StoreUnavailableError(store.url, `no answer within ${LONGEST / 1_000} s`);
  using limit = deadline(LONGEST, silent);
  const { signal } = limit;
  const within = <T>(work: Promise<T>) => race(work, signal);
  let hasAnswered = false;
  try {
    using first = deadline(FIRST, silent, signal);
    await within(ping(store, first.signal));
    const roundTrip = await within(measure(() => ping(store, signal)));
    hasAnswered = true;
    yield ok("reachable", `round trip ${shown(roundTrip)}`);
    const findings: Finding[] = [];
    for await (const finding of examineSystem(store, url, signal)) {
      findings.push(finding);
      yield finding;
    }
    if (findings.every(({ check, status }) => check !== "tables" || status === "ok")) {
      yield* await within(examineLocks(store, roundTrip));
      yield* await within(examineParts(store));
    }
  } catch (error) {
    yield failed(error, hasAnswered);
  }
}

/** Resolves to the product and the version of a store's servers, such as "Redis 7.0.15". Undefined if they do not tell. */
export async function versionOf(store: AnyStore, url: string): Promise<string | undefined> {
  const findings = examineSystem(store, url, AbortSignal.timeout(LONGEST));
  for await (const { check, status, message } of findings) {
    if (check === "version" && status !== "note") return message;
  }
  return undefined;
}

/** The finding for an error, of a server that has answered reads or not. Rethrows an error that is no failure of the store. */
export function failed(error: unknown, hasAnswered = false): Finding {
  if (!(error instanceof Error)) throw error;
  const { code } = Object(error.cause);
  if (code === "ResourceNotFoundException") {
    return problem("tables", "there is no such table", 'run "lockstep migrate"');
  }
  const cure = CURES.get(code);
  if (hasCode(error, "STORE_REFUSED") || code === "NoCredentials") {
    const all = "check user, password, TLS, privileges and tables";
    return problem("refused", error.message, cure ?? all);
  }
  if (!hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) throw error;
  if (hasAnswered) {
    const log = "it answers reads: its log tells why it does not write";
    return problem("unavailable", error.message, cure ?? log);
  }
  const all = "check that the server runs, host, port, firewall";
  return problem("unreachable", error.message, cure ?? all);
}

/** The advice for causes that say more than the error. */
const CURES = new Map(Object.entries({ ...DYNAMODB_CURES, ...REDIS_CURES }));

async function* examineSystem(
  store: AnyStore,
  url: string,
  signal: AbortSignal,
): AsyncGenerator<Finding> {
  if (store.has("database")) {
    yield judgeSkew(await skewOf(() => readSqlClock(store.database, signal)), STORE_TIME);
    yield* examineDatabase(store.database, store.url, signal);
  } else if (store.has("redis")) {
    const readClock = async () => {
      const [seconds, micros] = (await store.redis.call(["TIME"], { reads: true, signal })) as [
        string,
        string,
      ];
      return Number(seconds) * 1_000 + Number(micros) / 1_000;
    };
    yield judgeSkew(await skewOf(readClock), STORE_TIME);
    yield* await examineRedis(store.redis, url, signal);
  } else if (store.has("dynamodb")) {
    const skew = await skewOf(() => readDynamodbClock(store.dynamodb, signal));
    yield judgeSkew(skew, "DynamoDB refuses requests that are signed 15 minutes off");
    yield* await examineDynamodb(store.dynamodb);
  } else if (store.has("etcd")) {
    yield* await examineEtcd(url, signal);
  } else if (url.toLowerCase().startsWith("redlock")) {
    yield* await examineRedlock(url, signal);
  } else if (url.toLowerCase().startsWith("zookeeper")) {
    yield* await examineZooKeeper(url, signal);
  }
}

/** Takes and releases a lock: that needs all privileges of a client of locks. */
async function examineLocks({ locks }: AnyStore, roundTrip: Millis): Promise<readonly Finding[]> {
  const name = `lockstep-doctor/${crypto.randomUUID()}`;
  const options = { ttl: usualTtl(locks) };
  const startedAt = instant();
  const first = await locks.tryLock(name, options);
  const took = elapsedSince(startedAt);
  await first?.unlock();
  const write = await measure(async () => (await locks.tryLock(name, options))?.unlock());
  const cost = Math.max(0, write - 2 * roundTrip);
  return [
    ok("privileges", "locks can be taken and released"),
    ok("first lock", `after ${shown(took)}`),
    ok("durable write", `acquire and release cost ${shown(write)}, ${shown(cost)} above two reads`),
  ];
}

/** Asks stock and journal for changes of what does not exist: they need the privileges of real ones, and leave nothing. */
async function examineParts(store: AnyStore): Promise<readonly Finding[]> {
  const name = `lockstep-doctor/${crypto.randomUUID()}`;
  const findings: Finding[] = [];
  if (store.has("inventory")) {
    const change = { sku: name, quantity: 1, operationId: name };
    await store.inventory.decrement(change).catch((error) => {
      if (Object(error).code !== "UNKNOWN_SKU") throw error;
    });
    findings.push(ok("privileges", "stock can be changed"));
  }
  if (store.has("journal")) {
    await store.journal.cancel(name);
    findings.push(ok("privileges", "runs can be changed"));
  }
  return findings;
}

async function ping(store: AnyStore, signal: AbortSignal): Promise<unknown> {
  if (store.has("database")) return store.database.read(sql`SELECT 1 AS one`, signal);
  if (store.has("redis")) return store.redis.call(["PING"], { reads: true, signal });
  if (store.has("dynamodb")) return readDynamodbClock(store.dynamodb, signal);
  return store.locks.inspect("lockstep-doctor");
}

/** Resolves to the median time of a call. The first call, which connects, does not count. */
async function measure(call: () => Promise<unknown>): Promise<Millis> {
  await call();
  const times: Millis[] = [];
  while (times.length < REPEATS) {
    const startedAt = instant();
    await call();
    times.push(elapsedSince(startedAt));
  }
  return median(times);
}

/** Resolves to how far the store's clock is ahead of this machine's, give or take half a round trip. */
async function skewOf(readClock: () => Promise<Millis>): Promise<Millis> {
  const before = Date.now();
  const there = await readClock();
  return there - (before + Date.now()) / 2;
}

const STORE_TIME = "locks go by the store's clock alone";

function judgeSkew(skew: Millis, why: string): Finding {
  const text = `the store's clock is ${shown(Math.abs(skew))} ${skew < 0 ? "behind" : "ahead"}`;
  if (Math.abs(skew) < LARGE_SKEW) return ok("clock", text);
  return note("clock", `${text}; ${why}`, "synchronise the clocks");
}

function shown(span: Millis): string {
  return span < 10 ? `${span.toFixed(1)} ms` : `${Math.round(span)} ms`;
}
