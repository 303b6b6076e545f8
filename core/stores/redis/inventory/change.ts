import {
  type DecrementResult,
  type StockOutcome,
  unknownReservation,
  unknownSku,
} from "../../../inventory/inventory.ts";
import {
  describeBatch,
  type Operation,
  type OperationBatch,
  payloadHash,
} from "../../../inventory/operation.ts";
import { toBase64 } from "../../../lock/base64.ts";
import { quote, UnknownOutcomeError } from "../../../lock/errors.ts";
import { type Fence, FencedOutError, fenceOwner } from "../../../lock/fence.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { keyOf } from "../client/names.ts";
import type { Redis, Reply, Script, ScriptInput } from "../client/redis.ts";
import type { ReplicatedWrites } from "../client/replicas.ts";
import { CHANGE, CLAIM_FENCE } from "./scripts.ts";

/** The keys of stock. */
export interface RedisStockKeys {
  /** A hash: the units of a sku. */
  stock(sku: string): string;

  /** A sorted set: the sku's open reservations as "QUANTITY ID", by the time they expire. */
  reservations(sku: string): string;

  /** A list: the sku's ledger, oldest first. */
  ledger(sku: string): string;

  /** The record of an operation id. Never expires. */
  operation(id: string): string;

  /** The highest fence that a resource has seen, and its owner. */
  claim(resource: string): string;
}

export function stockKeys(prefix: string): RedisStockKeys {
  return {
    stock: (sku) => keyOf(prefix, "stock", sku),
    reservations: (sku) => keyOf(prefix, "reservations", sku),
    ledger: (sku) => keyOf(prefix, "ledger", sku),
    operation: (id) => keyOf(prefix, "operation", id),
    claim: (resource) => keyOf(prefix, "claim", resource),
  };
}

/** The client, the keys and the durability of one inventory. */
export interface RedisContext {
  readonly redis: Redis;
  readonly keys: RedisStockKeys;

  /** The replicas that must confirm a change. */
  readonly replicated: ReplicatedWrites | undefined;
}

interface ScriptRun {
  /** The statement whose truth is unknown after a failure. */
  readonly what: string;
  readonly script: Script;
  readonly input: Omit<ScriptInput, "signal">;
  readonly signal?: AbortSignal | undefined;
}

/** The answer of a script. Only "done" means that the script has applied its change. */
export type ScriptAnswer = readonly [status: string, ...rest: readonly string[]];

/**
 * Runs a repeatable script until it answers.
 *
 * Rejects with an UnknownOutcomeError also when the script failed half way, in which case it is not repeated, and
 * when it is done, or found no such sku or reservation, but too few replicas confirmed it in time.
 */
export async function runUntilKnown(
  context: RedisContext,
  { what, script, input, signal }: ScriptRun,
): Promise<ScriptAnswer> {
  const { redis, replicated } = context;
  const { reply, confirmed } = await retryUntilKnown(redis.address, what, signal, (limit) =>
    run(context, script, { ...input, signal: limit }),
  );
  const answer = reply as ScriptAnswer;
  if (answer[0] === "halfway") {
    throw new UnknownOutcomeError(redis.address, what, new Error(answer[1]));
  }
  if (!replicated || confirmed >= replicated.count || !NEEDS_REPLICAS.has(answer[0])) return answer;
  const inTime = `${what} at ${replicated.count} replicas: ${confirmed} confirmed in time`;
  throw new UnknownOutcomeError(redis.address, inTime);
}

/**
 * The answers that a master without its replicas may give wrongly: its writes may be lost, and the server that replaced it
 * may have data that this one lacks. A refused fence is certain: a newer holder has claimed the resource on any server.
 */
const NEEDS_REPLICAS: ReadonlySet<string> = new Set(["done", "unknown-sku", "unknown-reservation"]);

/** A repeated script waits for the replicas as well: they then have all earlier writes too. */
async function run(
  { redis, replicated }: RedisContext,
  script: Script,
  input: ScriptInput,
): Promise<{ readonly reply: Reply; readonly confirmed: number }> {
  if (replicated) return replicated.run(script, input);
  return { reply: await redis.run(script, input), confirmed: 0 };
}

/** Applies a batch once, however often this is called, in one script. All its operations are of one kind. */
export async function applyBatch(
  context: RedisContext,
  batch: OperationBatch,
  signal: AbortSignal | undefined,
): Promise<readonly DecrementResult[]> {
  const input = toInput(context.keys, batch);
  const run = { what: `${describeBatch(batch)} was done`, script: CHANGE, input, signal };
  let answer: ScriptAnswer;
  do answer = await runUntilKnown(context, run);
  while (answer[0] === "again");
  return toResults(batch, answer);
}

function toInput(
  keys: RedisStockKeys,
  { sku, fence, operations }: OperationBatch,
): Omit<ScriptInput, "signal"> {
  const [{ kind, reservation, expiresIn }] = operations as readonly [Operation];
  return {
    keys: [
      ...[keys.stock(sku), keys.reservations(sku), keys.ledger(sku)],
      keys.claim(fence?.resource ?? ""),
      ...operations.map(({ operationId }) => keys.operation(operationId)),
      ...(reservation === undefined ? [] : [keys.operation(reservation)]),
    ],
    args: [
      ...[kind, sku, String(fence ?? ""), (fence && fenceOwner(fence)) ?? ""],
      ...[reservation ?? "", expiresIn, keys.operation("")],
      ...operations.flatMap((operation) => [operation.quantity, payloadText(operation)]),
    ],
  };
}

function payloadText(operation: Operation): string {
  return toBase64(payloadHash(operation));
}

/** Throws the error for a batch that the script refused. */
function toResults(
  { sku, fence, operations }: OperationBatch,
  [status, ...rest]: ScriptAnswer,
): readonly DecrementResult[] {
  if (status === "late" && fence) throw fencedOut(fence, rest[0]);
  if (status === "unknown-sku") throw unknownSku(sku);
  if (status === "unknown-reservation") {
    throw unknownReservation(sku, operations[0]?.reservation ?? "");
  }
  return operations.map(({ operationId }, i) => {
    const [outcome, remaining, replayed] = rest.slice(3 * i, 3 * i + 3);
    return {
      operationId,
      outcome: outcome as StockOutcome | "conflict",
      remaining: Number(remaining),
      replayed: replayed === "1",
    };
  });
}

/** Claims a resource for the fence. Rejects with a FencedOutError. */
export async function claim(context: RedisContext, fence: Fence): Promise<void> {
  const [status, current] = await runUntilKnown(context, {
    what: `${quote(fence.resource)} was claimed`,
    script: CLAIM_FENCE,
    input: {
      keys: [context.keys.claim(fence.resource)],
      args: [String(fence), fenceOwner(fence) ?? ""],
    },
  });
  if (status === "late") throw fencedOut(fence, current);
}

/** The resource has a later fence, or an equal one of another holder. */
function fencedOut(fence: Fence, current = ""): FencedOutError {
  return new FencedOutError(fence, current, { byEqual: current === String(fence) });
}
