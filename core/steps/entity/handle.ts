import {
  type ClaimedEntity,
  type EntityAnswer,
  type EntityId,
  type EntityMessage,
  type EntityRecords,
  type EntityWrite,
  entityResource,
} from "../../journal/entities.ts";
import { deadline, race, sleep } from "../../lock/abort.ts";
import { asyncContext } from "../calls.ts";
import { decode, encodeError, encodeResult } from "../codec.ts";
import type { Seal } from "../envelope.ts";
import { isTerminal, MisuseError, StepTimeoutError, unreadableValue } from "../errors.ts";
import { idempotencyKey } from "../idempotency.ts";
import { retryDelay } from "../retry.ts";
import { validate } from "../schema.ts";
import type { AnyEntity, EntityChange, EntityHandler, EntityScope } from "./entity.ts";

/** A claimed entity, what encodes its values, and what its errors are reported to. */
export interface EntityTurn extends ClaimedEntity {
  readonly records: EntityRecords;
  readonly seal: Seal | undefined;
  readonly onError: OnHandlerError;
}

export type OnHandlerError = (
  error: unknown,
  at: {
    readonly runId: string;
    readonly workflow: string;
    readonly name: string;
    readonly key: string;
    readonly attempt?: number;
  },
) => void;

interface RunningHandler {
  readonly turn: EntityTurn;
  hasEnded: boolean;
}

/** The handlers that have called the current code: each one has called the key of the next one. */
const callers = asyncContext<readonly RunningHandler[]>();

/** Throws a MisuseError in a handler of the same key, which would wait for its own end. */
export function checkReentry(records: EntityRecords, id: EntityId): void {
  const resource = entityResource(id);
  const isOf = ({ turn, hasEnded }: RunningHandler) =>
    !hasEnded && turn.records === records && entityResource(turn.id) === resource;
  if (!callers.getStore()?.some(isOf)) return;
  const problem = `a handler of ${id.entity} ${id.key} calls its own key, and would wait for itself`;
  throw new MisuseError(`${problem}; use \`tell\`, or change the state that it returns`);
}

/** A message with its answer, and the state after it. */
export interface HandledMessage {
  /** Encoded. */
  readonly state: string;
  /** The state before it. */
  readonly before: string;
  readonly answer: EntityAnswer & { readonly message: EntityMessage };
  readonly writes: readonly EntityWrite[];

  /** Whether an attempt was too late: its handler may go on, with the fence of this turn. */
  readonly mayGoOn: boolean;
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
  const before = {
    text: state ?? (await encodeResult(what, entity.initial, turn)),
    isStored: state !== undefined,
  };
  let mayGoOn = false;
  for (let attempt = 1; ; attempt += 1) {
    try {
      return { ...(await call(entity, turn, message, before, { attempt, signal })), mayGoOn };
    } catch (error) {
      signal.throwIfAborted();
      // A process with the codec, or with newer code, handles the message.
      if (isTerminal(error, "UNREADABLE_VALUE")) throw error;
      report(turn, message, error, attempt);
      mayGoOn ||= error instanceof StepTimeoutError;
      const pause = pauseAfter(error, attempt, entity);
      if (pause === undefined) return { ...refused(message, before.text, error), mayGoOn };
      await sleep(pause, signal);
    }
  }
}

/** Reports an error of a handler: after a `tell`, nobody waits for the answer. */
export function report(
  { id, onError }: EntityTurn,
  { handler, operationId }: EntityMessage,
  error: unknown,
  attempt?: number,
): void {
  const run = { runId: entityResource(id), workflow: id.entity };
  onError(error, { ...run, name: handler, key: operationId, ...(attempt && { attempt }) });
}

/** Makes the failure of a message the answer. */
export function refused(message: EntityMessage, before: string, error: unknown): HandledMessage {
  return {
    state: before,
    before,
    answer: { message, outcome: "failed", value: encodeError(error) },
    writes: [],
    mayGoOn: false,
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
  { name, handlers, state: schema, timeout }: AnyEntity,
  turn: EntityTurn,
  message: EntityMessage,
  before: { readonly text: string; readonly isStored: boolean },
  { attempt, signal }: Pick<EntityScope<never>, "attempt" | "signal">,
): Promise<Omit<HandledMessage, "mayGoOn">> {
  const { id, fence, seal } = turn;
  const { operationId, handler, input } = message;
  const what = `the state of ${name} ${id.key}`;
  const { handle } = handlers[handler] as EntityHandler<unknown, unknown>;
  const late = () => new StepTimeoutError(`${name}.${handler}`, timeout);
  using limit = deadline(timeout, late, signal);
  const scope: EntityScope<unknown> = {
    ...{ key: id.key, fence, operationId, attempt, signal: limit.signal },
    state: await validate(what, schema, decode(before.text)).catch((error) => {
      throw before.isStored ? unreadableValue(error) : error;
    }),
    idempotencyKey: idempotencyKey(entityResource(id), operationId),
  };
  const given = decode<never>(input);
  const work = async () => handle(scope as never, given);
  const running = { turn, hasEnded: false };
  const handling = callers.run([...(callers.getStore() ?? []), running], work);
  const change: EntityChange<unknown, unknown> = await race(handling, limit.signal).finally(() => {
    running.hasEnded = true;
  });
  const { state, result, writes } = change ?? {};
  const value = await encodeResult(`the result of ${name}.${handler}`, result, { seal });
  const changed = async () => encodeResult(what, await validate(what, schema, state), { seal });
  return {
    // Not the state of the scope, which the handler may have changed in place.
    state: state === undefined ? before.text : await changed(),
    before: before.text,
    answer: { message, outcome: "ok", value },
    writes: writes ?? [],
  };
}
