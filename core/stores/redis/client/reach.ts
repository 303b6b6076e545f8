import { follow, race, sleep } from "../../../lock/abort.ts";
import { type Backoff, backoff } from "../../../lock/retry.ts";
import { after, type Millis } from "../../../lock/time.ts";
import type {
  Connect,
  RedisConnection,
  RedisConnectionEvents,
  ServerAddress,
} from "./connection.ts";
import { CommandFailure, isTemporary } from "./failure.ts";

/** Connects to the server that has the data, starting at any server. */
export type Reach = (
  start: ServerAddress,
  signal: AbortSignal,
  events: RedisConnectionEvents,
) => Promise<RedisConnection>;

/** How long the first server may take before the next one is asked as well. */
const STAGGER: Millis = 250;

/** A failover takes seconds. */
const AGAIN: Backoff = { base: 50, factor: 2, max: 500 };

/** Connects by way of any of the servers, and tries again until the signal aborts. */
export function connectByAny(servers: () => readonly ServerAddress[], reach: Reach): Connect {
  return async (signal, events) => {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await firstOf(servers(), (start, limit) => reach(start, limit, events), signal);
      } catch (failure) {
        if (signal.aborted || !isPassing(failure)) throw failure;
        if (isFailure(failure)) events.failed?.(failure);
        await sleep(backoff(attempt, AGAIN), signal).catch(() => {
          throw failure;
        });
      }
    }
  };
}

/** Tries one server after another, the next one after a failure or 250 ms, and closes all connections but the first. */
async function firstOf(
  servers: readonly ServerAddress[],
  connect: (server: ServerAddress, signal: AbortSignal) => Promise<RedisConnection>,
  signal: AbortSignal,
): Promise<RedisConnection> {
  const won = new AbortController();
  using limit = follow(signal, won.signal);
  const connectOnce = async (server: ServerAddress) => {
    limit.signal.throwIfAborted();
    const connection = await connect(server, limit.signal);
    if (won.signal.aborted) connection.close();
    won.signal.throwIfAborted();
    won.abort(new Error("another server was faster"));
    return connection;
  };
  let turn: Promise<unknown> = Promise.resolve();
  const attempts = servers.map((server) => {
    const attempt = turn.then(() => connectOnce(server));
    turn = turn.then(() => settledOrLate(attempt));
    return attempt;
  });
  try {
    return await Promise.any(attempts);
  } catch (error) {
    const failures = (error as AggregateError).errors.filter(isFailure);
    // A refusal, such as that of a password, says more than a server that is busy, and that more than a closed port.
    const [first = new CommandFailure("unsent", "no server is known yet")] = failures;
    throw failures.find((each) => !isPassing(each)) ?? failures.find(isTemporary) ?? first;
  }
}

/** Resolves when the promise settles, or after 250 ms. */
function settledOrLate(promise: Promise<unknown>): Promise<void> {
  return new Promise((resolve) => {
    const cancel = after(STAGGER, resolve);
    const settle = () => {
      cancel();
      resolve();
    };
    promise.then(settle, settle);
  });
}

/**
 * Connects, and keeps the connection if it passes the check. Its end is reported from then on: a connection that was
 * made on the way to another server ends unheard.
 */
export async function connectIf(
  connect: Connect,
  check: (connection: RedisConnection) => Promise<unknown>,
  signal: AbortSignal,
  events: RedisConnectionEvents,
): Promise<RedisConnection> {
  let isKept = false;
  const ended = () => {
    if (isKept) events.ended();
  };
  const connection = await connect(signal, { message: events.message, ended });
  try {
    await race(check(connection), signal);
    isKept = true;
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

function isFailure(error: unknown): error is CommandFailure {
  return error instanceof CommandFailure;
}

/** Whether another attempt may succeed soon. */
function isPassing(failure: unknown): boolean {
  if (!isFailure(failure)) return true;
  return failure.kind === "unsent" || failure.kind === "unanswered" || isTemporary(failure);
}
