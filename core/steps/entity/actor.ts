import type {
  ClaimedEntity,
  EntityAnswer,
  EntityCommit,
  EntityId,
  EntityMessage,
  EntityRecords,
  EntityVisitResult,
} from "../../journal/entities.ts";
import { entityResource } from "../../journal/entities.ts";
import { race, sleep } from "../../lock/abort.ts";
import { checkSignal, checkText, wrongType } from "../../lock/checks.ts";
import { hasCode, LockLostError } from "../../lock/errors.ts";
import { Lease } from "../../lock/lease.ts";
import { checkOptionNames, type OptionNames } from "../../lock/options.ts";
import { backoff } from "../../lock/retry.ts";
import { elapsedSince, type Instant, instant, type Millis } from "../../lock/time.ts";
import { decode, decodeError, encode, encodeResult, hashOf } from "../codec.ts";
import type { Envelopes, Seal } from "../envelope.ts";
import { isTerminal, TerminalError } from "../errors.ts";
import { validate } from "../schema.ts";
import { checkKeyPart } from "../step-keys.ts";
import type {
  AnyEntity,
  Entity,
  EntityHandlers,
  InputOfHandler,
  ResultOfHandler,
} from "./entity.ts";
import {
  checkReentry,
  type EntityTurn,
  type HandledMessage,
  handle,
  type OnHandlerError,
  refused,
  report,
} from "./handle.ts";

/** One key of an entity. */
export interface EntityHandle<State, H extends EntityHandlers> {
  /**
   * Calls a handler once per operation id, and resolves to its result: in a repetition, to the first one. Other
   * operations of the key that wait are handled on the way.
   *
   * Rejects with a TerminalError with the code of the handler's error, INVALID for an invalid input, or INPUT_CONFLICT
   * for an operation id that was used with another input. After any other rejection, the operation may be handled later:
   * call again with the same operation id.
   */
  call<N extends keyof H & string>(
    handler: N,
    input: InputOfHandler<H[N]>,
    options: OperationOptions,
  ): Promise<ResultOfHandler<H[N]>>;

  /** As `call`, without waiting for the answer. A worker, or the next call for the key, handles the operation. */
  tell<N extends keyof H & string>(
    handler: N,
    input: InputOfHandler<H[N]>,
    options: OperationOptions,
  ): Promise<void>;

  /** Reads the state as of the last commit. */
  state(): Promise<State>;
}

export interface OperationOptions {
  /** 1 to 255 bytes. A handler is called once per operation id: that of the order, say, or a step's `idempotencyKey`. */
  readonly operationId: string;
  readonly signal?: AbortSignal;
}

const OPERATION_OPTIONS = {
  operationId: true,
  signal: true,
} satisfies OptionNames<OperationOptions>;

/** Returns the options. Throws a TypeError for invalid ones. */
function checkOperation(call: "call" | "tell", options: Partial<OperationOptions> = {}) {
  checkOptionNames(call, options, OPERATION_OPTIONS);
  checkText("operation id", options.operationId, 255);
  checkSignal(options.signal);
  return { operationId: options.operationId, signal: options.signal };
}

/** Answers of handlers that take less than this together share a commit. */
const GROUP: Millis = 5;

/** After this, a turn that has answered its caller ends. */
const LONGEST_TURN: Millis = 500;

const POLL = { base: 5, factor: 1.5, max: 100 };

/** The most keys whose operations are delivered at a time. */
const MOST_KEYS = 16;

/** The most keys that one delivery passes over. */
const MOST_STUCK = 1_000;

type Operation = Pick<EntityMessage, "handler" | "operationId"> & { readonly input: unknown };

interface Stop {
  /** No further message is handled. */
  readonly signal: AbortSignal | undefined;

  /** The handler in progress is aborted, and its message waits for another turn. */
  readonly abort?: AbortSignal | undefined;
}

interface Turn {
  /** An answer from before the turn. */
  readonly answer: EntityAnswer | undefined;

  /** The answers of this turn, by operation id. */
  readonly answers: ReadonlyMap<string, EntityAnswer>;

  /** Whether it has ended although more messages may wait. */
  readonly isLong?: boolean;
}

/** Handles the operations of entities in this process, on the records of a journal. */
export class Actors {
  readonly #records: EntityRecords;
  readonly #ttl: Millis;
  readonly #onTold: () => void;
  readonly #onError: OnHandlerError;
  readonly #envelopes: Envelopes | undefined;
  readonly #entities = new Map<string, AnyEntity>();

  /** Calls of this process that wait for an answer. */
  readonly #waiting = new Map<string, (answer: EntityAnswer) => void>();

  /** `envelopes` are those of `records`. `onTold` is called when an operation waits that no caller handles. */
  constructor(
    records: EntityRecords,
    ttl: Millis,
    {
      envelopes,
      onTold,
      onError,
    }: {
      readonly envelopes: Envelopes | undefined;
      readonly onTold: () => void;
      readonly onError: OnHandlerError;
    },
  ) {
    this.#records = records;
    this.#ttl = ttl;
    this.#envelopes = envelopes;
    this.#onTold = onTold;
    this.#onError = onError;
  }

  register(entity: AnyEntity): void {
    if (!entity?.handlers) throw wrongType("an entity", "made by entity(…)", entity);
    const known = this.#entities.get(entity.name);
    if (known && known !== entity) throw new TypeError(`two entities have the name ${entity.name}`);
    this.#entities.set(entity.name, entity);
  }

  handle<State, H extends EntityHandlers>(
    entity: Entity<State, H>,
    key: string,
  ): EntityHandle<State, H> {
    this.register(entity);
    checkKeyPart("key", key, 255);
    const id = { entity: entity.name, key };
    return {
      call: async (handler, input, options) => {
        const { operationId, signal } = checkOperation("call", options);
        checkReentry(this.#records, id);
        const message = await toMessage(entity, { handler, input, operationId }, this.#sealFor(id));
        return toResult(await this.#call(id, message, signal)) as never;
      },
      tell: async (handler, input, options) => {
        const { operationId, signal } = checkOperation("tell", options);
        const message = await toMessage(entity, { handler, input, operationId }, this.#sealFor(id));
        const { inputHash } = await this.#records.visit(id, { message }, signal);
        checkSame(message, inputHash);
        this.#onTold();
      },
      state: async () => {
        const { state } = await this.#records.read(id);
        const value = decode(state ?? encode(entity.initial));
        return validate(
          `the state of ${entity.name} ${key}`,
          entity.state,
          value,
        ) as Promise<State>;
      },
    };
  }

  #sealFor(id: EntityId): Seal | undefined {
    return this.#envelopes?.sealFor(entityResource(id));
  }

  /** Handles operations that wait, of several keys at a time. Resolves to their number. */
  async deliver(signal: AbortSignal | undefined, abort: AbortSignal | undefined): Promise<number> {
    const names = [...this.#entities.keys()];
    // Keys whose next operation waits for another process. They have waited longest, and would hide all others.
    const stuck = new Set<string>();
    for (let count = 0; ; ) {
      const most = MOST_KEYS + stuck.size;
      const found = signal?.aborted ? [] : await this.#records.waiting(names, most);
      const waiting = found.filter((id) => !stuck.has(entityResource(id)));
      let isMore = found.length >= most;
      const handle = async (id: EntityId) => {
        const { answers, isLong = false } = await this.#deliverTo(id, { signal, abort });
        count += answers.size;
        isMore ||= isLong;
        if (answers.size === 0) stuck.add(entityResource(id));
      };
      await Promise.all(waiting.map(handle));
      if (waiting.length === 0 || !isMore || stuck.size > MOST_STUCK) return count;
    }
  }

  /** A message that this process cannot decode waits for a process with the codec, and one without time left for the next. */
  async #deliverTo(id: EntityId, stop: Stop): Promise<Turn> {
    try {
      return await this.#takeTurn(id, undefined, stop);
    } catch (error) {
      if (!isTerminal(error, "UNREADABLE_VALUE") && !stop.signal?.aborted) throw error;
      return { answer: undefined, answers: new Map() };
    }
  }

  async #call(
    id: EntityId,
    message: EntityMessage,
    signal: AbortSignal | undefined,
  ): Promise<EntityAnswer> {
    signal?.throwIfAborted();
    const { promise, resolve } = Promise.withResolvers<EntityAnswer>();
    const at = waitingKey(id, message);
    this.#waiting.set(at, resolve);
    let answer: EntityAnswer | undefined;
    const answered = promise.then((given) => {
      answer = given;
    });
    try {
      for (let attempt = 0; ; attempt += 1) {
        const taking = this.#takeTurn(id, message, { signal });
        // A turn that the caller does not wait for goes on.
        const turn = await (signal ? race(taking, signal) : taking);
        answer ??= turn.answer ?? turn.answers.get(message.operationId);
        for (let freeIn = 1; answer === undefined && freeIn > 0; attempt += 1) {
          await Promise.race([sleep(backoff(attempt, POLL), signal), answered]);
          if (answer) break;
          const view = await this.#records.read(id, message.operationId, signal);
          answer = view.answer;
          freeIn = view.freeIn;
        }
        if (answer) return answer;
      }
    } finally {
      if (this.#waiting.get(at) === resolve) this.#waiting.delete(at);
    }
  }

  /** Sends the message, and handles messages if the entity is free. */
  async #takeTurn(id: EntityId, message: EntityMessage | undefined, stop: Stop): Promise<Turn> {
    const sentAt = instant();
    const { claimed, answer } = await this.#visit(id, message, stop);
    if (!claimed) return { answer, answers: new Map() };
    const isDone = (answers: Turn["answers"]) =>
      answer !== undefined || (message ? answers.has(message.operationId) : answers.size > 0);
    const handled = await this.#handleAll(claimed, sentAt, stop, isDone);
    // Nobody may call for the messages that are left.
    if (message && handled.isLong) this.#onTold();
    return { answer, ...handled };
  }

  /** Sends the message, and claims a free entity. A claim is released if nobody waits for it: the next turn would wait for its end. */
  async #visit(
    id: EntityId,
    message: EntityMessage | undefined,
    { signal, abort = signal }: Stop,
  ): Promise<EntityVisitResult> {
    abort?.throwIfAborted();
    const visiting = this.#records.visit(id, { message, ttl: this.#ttl });
    try {
      const visited = await (abort ? race(visiting, abort) : visiting);
      if (message) checkSame(message, visited.inputHash);
      return visited;
    } catch (error) {
      const released = visiting
        .then(({ claimed }) => claimed && this.#records.release(claimed))
        .catch(() => undefined);
      // A caller that leaves does not wait.
      if (!abort?.aborted) await released;
      throw error;
    }
  }

  /**
   * Handles the entity's messages until none is left, the turn is lost, or the signal aborts. When others send all the
   * time, the turn ends, too: the caller waits for it, and other keys do. So it does after a handler that was too late:
   * should the handler go on, its fence is older than that of the next message.
   *
   * Rejects only before `isDone`: a failure afterwards is none of the caller's.
   */
  async #handleAll(
    claimed: ClaimedEntity,
    sentAt: Instant,
    { signal, abort }: Stop,
    isDone: (answers: Turn["answers"]) => boolean,
  ): Promise<Omit<Turn, "answer">> {
    const answers = new Map<string, EntityAnswer>();
    const [records, seal] = [this.#records, this.#sealFor(claimed.id)];
    const turn: EntityTurn = { ...claimed, records, seal, onError: this.#onError };
    const lease = this.#lease(claimed, sentAt);
    const entity = this.#entities.get(claimed.id.entity) as AnyEntity;
    let { messages, state } = claimed;
    let isLong = false;
    const onAbort = () => lease.end("released");
    if (abort?.aborted) onAbort();
    abort?.addEventListener("abort", onAbort);
    try {
      while (messages.length > 0) {
        const isKnown = Object.hasOwn(entity.handlers, messages[0]?.handler ?? "");
        // A process with newer code has the handler.
        if (!isKnown || signal?.aborted) break;
        isLong ||= isDone(answers) && elapsedSince(sentAt) > LONGEST_TURN;
        if (isLong) break;
        const group = await handleGroup(entity, turn, messages, state, lease.signal);
        const committed = await this.#commit(entity, turn, group);
        state = committed.change.state;
        messages = committed.next;
        for (const { message, ...answer } of committed.change.answers) {
          answers.set(message.operationId, answer);
          this.#waiting.get(waitingKey(claimed.id, message))?.(answer);
        }
        isLong = group.at(-1)?.mayGoOn ?? false;
      }
      return { answers, isLong };
    } catch (error) {
      // Another process has the turn, and handles what is left.
      if (hasCode(error, "FENCED_OUT", "LOCK_LOST")) return { answers, isLong };
      if (!isDone(answers)) throw error;
      const [message] = messages;
      if (message && !isTerminal(error, "UNREADABLE_VALUE")) report(turn, message, error);
      // A turn that has answered nothing wakes nobody: its first message would fail again.
      return { answers, isLong: isLong || answers.size > 0 };
    } finally {
      abort?.removeEventListener("abort", onAbort);
      // Renewals end first: a late one must not take back the turn.
      lease.end("released");
      if (messages.length > 0) await this.#records.release(claimed).catch(() => {});
    }
  }

  /** Commits a group. If the database refuses the last one's `writes`, the refusal is its answer. */
  async #commit(
    { keep }: AnyEntity,
    turn: EntityTurn,
    group: readonly HandledMessage[],
  ): Promise<{ readonly change: EntityCommit; readonly next: readonly EntityMessage[] }> {
    const change = toCommit(group, keep);
    try {
      return { change, next: await this.#records.commit(turn, change) };
    } catch (error) {
      const last = group.at(-1);
      const isLost = hasCode(error, "FENCED_OUT", "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME");
      if (isLost || !last || change.writes.length === 0) throw error;
      report(turn, last.answer.message, error);
      const failed = refused(last.answer.message, last.before, error);
      const rest = toCommit([...group.slice(0, -1), failed], keep);
      return { change: rest, next: await this.#records.commit(turn, rest) };
    }
  }

  #lease(claimed: ClaimedEntity, sentAt: Instant): Lease {
    const { id } = claimed;
    const names = [entityResource(id)];
    return new Lease({
      names,
      ttl: this.#ttl,
      sentAt,
      autoRenew: true,
      maxHold: Number.POSITIVE_INFINITY,
      toLossError: (why) => new LockLostError(names, why),
      renew: async (ttl, signal) => {
        const grant = { ttl, sentAt: instant() };
        return (await this.#records.renew(claimed, ttl, signal)) ? grant : undefined;
      },
    });
  }
}

/** Handles messages until one has `writes` or was too late, or the time of a group is over. */
async function handleGroup(
  entity: AnyEntity,
  turn: EntityTurn,
  messages: readonly EntityMessage[],
  state: string | undefined,
  signal: AbortSignal,
): Promise<readonly HandledMessage[]> {
  const startedAt = instant();
  const group: HandledMessage[] = [];
  for (const message of messages) {
    if (!Object.hasOwn(entity.handlers, message.handler)) break;
    const before = group.at(-1)?.state ?? state;
    const handled = await handle(entity, turn, message, before, signal).catch((error) => {
      if (group.length === 0 || !isTerminal(error, "UNREADABLE_VALUE")) throw error;
    });
    // The messages that were handled before an unreadable one are committed first.
    if (!handled) break;
    group.push(handled);
    const isLast = handled.writes.length > 0 || handled.mayGoOn;
    if (isLast || elapsedSince(startedAt) > GROUP) break;
  }
  return group;
}

function toCommit(group: readonly HandledMessage[], keep: Millis): EntityCommit {
  return {
    state: group.at(-1)?.state ?? "",
    answers: group.map(({ answer }) => answer),
    writes: group.flatMap(({ writes }) => writes),
    keep,
  };
}

async function toMessage(
  { name, handlers }: AnyEntity,
  { handler, input, operationId }: Operation,
  seal: Seal | undefined,
): Promise<EntityMessage> {
  const known = Object.hasOwn(handlers, handler) ? handlers[handler] : undefined;
  if (!known) throw new TypeError(`the entity ${name} has no handler ${JSON.stringify(handler)}`);
  const what = `the input of ${name}.${handler}`;
  const value = await validate(what, known.input, input);
  return {
    ...{ operationId, handler },
    input: await encodeResult(what, value, { seal }),
    inputHash: hashOf([handler, value]),
  };
}

function checkSame({ operationId, inputHash }: EntityMessage, known: string | undefined): void {
  if (known === undefined || known === inputHash) return;
  const problem = `operation ${JSON.stringify(operationId)} was sent with another handler or input`;
  throw new TerminalError("INPUT_CONFLICT", `${problem}; use another id, or the same input`);
}

function toResult({ outcome, value }: EntityAnswer): unknown {
  if (outcome === "ok") return decode(value);
  const { code = "FAILED", message, data } = decodeError(value);
  throw new TerminalError(code, message, { data });
}

function waitingKey(id: EntityId, { operationId }: EntityMessage): string {
  return JSON.stringify([id.entity, id.key, operationId]);
}
