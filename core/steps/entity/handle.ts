import {
  type ClaimedEntity,
  type EntityAnswer,
  type EntityMessage,
  type EntityWrite,
  entityResource,
} from "../../journal/entities.ts";
import { race, sleep } from "../../lock/abort.ts";
import { decode, encodeError, encodeResult } from "../codec.ts";
import type { Seal } from "../envelope.ts";
import { isTerminal } from "../errors.ts";
import { idempotencyKey } from "../idempotency.ts";
import { retryDelay } from "../retry.ts";
import { validate } from "../schema.ts";
import type { AnyEntity, EntityChange, EntityHandler, EntityScope } from "./entity.ts";

/** A claimed entity, and what encodes its values. */
export interface EntityTurn extends ClaimedEntity {
  readonly seal: Seal | undefined;
}

/** A message with its answer, and the state after it. */
export interface HandledMessage {
  /** Encoded. */
  readonly state: string;
  /** The state before it. */
  readonly before: string;
  readonly answer: EntityAnswer & { readonly message: EntityMessage };
  readonly writes: readonly EntityWrite[];
}

/**
 * Calls the message's handler until it succeeds or its error is final. An error becomes the answer, and leaves the
 * state as it was. Rejects with the signal's reason when the turn is lost.
 */
export async function handle(
  entity: AnyEntity,
  turn: EntityTurn,
  message: EntityMessage,
  state: string | undefined,
  signal: AbortSignal,
): Promise<HandledMessage> {
  const what = `the initial state of ${entity.name}`;
  const before = state ?? (await encodeResult(what, entity.initial, turn));
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await call(entity, turn, message, before, { attempt, signal });
    } catch (error) {
      signal.throwIfAborted();
      // A process with the codec handles the message.
      if (isTerminal(error, "UNREADABLE_VALUE")) throw error;
      const pause = pauseAfter(error, attempt, entity);
      if (pause === undefined) return refused(message, before, error);
      await sleep(pause, signal);
    }
  }
}

/** Makes the failure of a message the answer. */
export function refused(message: EntityMessage, before: string, error: unknown): HandledMessage {
  return {
    state: before,
    before,
    answer: { message, outcome: "failed", value: encodeError(error) },
    writes: [],
  };
}

/** An error of the policy itself is final. */
function pauseAfter(error: unknown, attempt: number, { retry }: AnyEntity) {
  try {
    return retryDelay(error, attempt, retry);
  } catch {
    return undefined;
  }
}

async function call(
  { name, handlers, state: schema }: AnyEntity,
  { id, fence, seal }: EntityTurn,
  message: EntityMessage,
  before: string,
  attempt: Pick<EntityScope<never>, "attempt" | "signal">,
): Promise<HandledMessage> {
  const { operationId, handler, input } = message;
  const what = `the state of ${name} ${id.key}`;
  const { handle } = handlers[handler] as EntityHandler<unknown, unknown>;
  const scope: EntityScope<unknown> = {
    ...{ key: id.key, fence, operationId, ...attempt },
    state: await validate(what, schema, decode(before)),
    idempotencyKey: idempotencyKey(entityResource(id), operationId),
  };
  const handling = handle(scope as never, decode<never>(input));
  const change: EntityChange<unknown, unknown> = await race(handling, attempt.signal);
  const { state = scope.state, result, writes } = change ?? {};
  const value = await encodeResult(`the result of ${name}.${handler}`, result, { seal });
  return {
    state: await encodeResult(what, await validate(what, schema, state), { seal }),
    before,
    answer: { message, outcome: "ok", value },
    writes: writes ?? [],
  };
}
