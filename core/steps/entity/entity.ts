import type { Sql } from "../../database/sql.ts";
import { checkFunction, checkText, wrongType } from "../../lock/checks.ts";
import { type Duration, toMillis } from "../../lock/duration.ts";
import { quote } from "../../lock/errors.ts";
import type { Fence } from "../../lock/fence.ts";
import { checkOptionNames, type OptionNames } from "../../lock/options.ts";
import type { Millis } from "../../lock/time.ts";
import { type RetryPolicy, toPolicy } from "../retry.ts";
import { checkSchema, type InputOf, type OutputOf, type Schema } from "../schema.ts";
import { checkKeyPart } from "../step-keys.ts";

export interface EntityDefinition<S extends Schema> {
  /** 1 to 200 bytes, where "/" and "%" count as three each. */
  readonly name: string;

  /** Validates the state after it was read, and before it is written. */
  readonly state: S;

  /** The state of a key without earlier operations. */
  readonly initial: InputOf<S>;

  /**
   * How often a handler is tried before its error is the answer. Other operations of the key wait. Default 5 attempts with
   * pauses from 50 ms to 1 s, also for what a policy leaves out.
   */
  readonly retry?: RetryPolicy | false;

  /** The longest that a handler may take. It is tried again then, as after an error. Default 30 s. */
  readonly timeout?: Duration;

  /** How long answers are kept, and their operation ids are known. Default a day. */
  readonly keep?: Duration;
}

/** The arguments of a handler besides the input. */
export interface EntityScope<State> {
  readonly key: string;
  readonly state: State;

  /** Greater than in all earlier turns of this key: pass it to every resource that the handler writes to. */
  readonly fence: Fence;
  readonly operationId: string;

  /** The same for each attempt of this operation, and for no other operation of any entity. */
  readonly idempotencyKey: string;

  /** From 1. */
  readonly attempt: number;

  /** Aborts after the `timeout`, and when the turn is lost: another process has the key then. The result does not count. */
  readonly signal: AbortSignal;
}

/** The result of a handler. */
export interface EntityChange<State, Result> {
  /** The new state. Default: the old one. */
  readonly state?: State;

  /** The answer to the caller. */
  readonly result?: Result;

  /**
   * Committed together with the state, for data of your own in the journal's database: statements in SQL, or the items of
   * a transaction of the journal's client.
   */
  readonly writes?: readonly (Sql | Readonly<Record<string, object>>)[];
}

/** One handler. Made by the function that `entity` passes to its second argument. */
export interface EntityHandler<Input, Result> {
  readonly input: Schema;
  readonly handle: (scope: never, input: never) => Promise<EntityChange<unknown, unknown>>;

  /** For the types of calls alone. */
  readonly types?: { readonly input: Input; readonly result: Result };
}

export type EntityHandlers = Readonly<Record<string, EntityHandler<unknown, unknown>>>;

/** A kind of durable actor: a state per key, and handlers that change it one at a time. Made by `entity`. */
export interface Entity<State, H extends EntityHandlers> {
  readonly name: string;
  readonly state: Schema<unknown, State>;
  readonly initial: unknown;
  readonly retry: RetryPolicy;
  readonly timeout: Millis;
  readonly keep: Millis;
  readonly handlers: H;
}

/** An entity of any state. */
export type AnyEntity = Entity<unknown, EntityHandlers>;

export type InputOfHandler<H> = H extends EntityHandler<infer Input, unknown> ? Input : never;
export type ResultOfHandler<H> = H extends EntityHandler<unknown, infer Result> ? Result : never;

const DAY: Millis = 86_400_000;

/** Shorter than that of steps: the key's other operations wait. */
const RETRY: RetryPolicy = { attempts: 5, base: 50, max: 1_000 };
const TIMEOUT: Millis = 30_000;

const DEFINITION = {
  name: true,
  state: true,
  initial: true,
  retry: true,
  timeout: true,
  keep: true,
} satisfies OptionNames<EntityDefinition<Schema>>;

/**
 * Makes a kind of entity: accounts, seats, one shelf per product.
 *
 * The operations of one key are handled one at a time, in the order of their arrival, by whichever process has the
 * key's turn. The new state, the answers and the handlers' `writes` are committed in one transaction, so each operation
 * id changes the state once. A handler may be called again when its process has crashed: effects elsewhere need the
 * `idempotencyKey`, or a resource that checks the `fence`.
 */
export function entity<S extends Schema, H extends EntityHandlers>(
  definition: EntityDefinition<S>,
  define: (on: DefineHandler<OutputOf<S>>) => H,
): Entity<OutputOf<S>, H> {
  checkOptionNames("entity", definition, DEFINITION);
  const {
    name,
    state,
    initial,
    retry,
    timeout = TIMEOUT,
    keep = DAY,
  } = Object(definition) as typeof definition;
  checkKeyPart("entity name", name, 200);
  checkSchema("state", state);
  checkFunction("the handlers of an entity", define);
  const handlers = define((input, handle) => ({ input, handle }));
  if (typeof handlers !== "object" || handlers === null) {
    throw wrongType("the handlers of an entity", "returned as an object", handlers);
  }
  for (const [handler, made] of Object.entries(handlers)) {
    checkText("handler name", handler, 200);
    checkSchema(`the input of handler ${quote(handler)}`, made?.input);
    checkFunction(`handler ${quote(handler)}`, made.handle);
  }
  return {
    name,
    state: state as Schema<unknown, OutputOf<S>>,
    initial,
    retry: toPolicy(retry, { defaults: RETRY }),
    timeout: toMillis("timeout", timeout, 1),
    keep: toMillis("keep", keep),
    handlers,
  };
}

/** Makes a handler from the schema of its input, and its function. */
type DefineHandler<State> = <I extends Schema, Result = undefined>(
  input: I,
  handle: (scope: EntityScope<State>, input: OutputOf<I>) => Promise<EntityChange<State, Result>>,
) => EntityHandler<InputOf<I>, Result>;
