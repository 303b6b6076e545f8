import { DEFAULT_QUEUE } from "../../core/journal/turn-order.ts";
import { after, elapsedSince, instant, type Millis } from "../../core/lock/time.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import type { Entity } from "../../core/steps/entity/entity.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import type { AnyWorkflow, RunOutcome } from "../../core/steps/workflow.ts";
import { openDurableObject } from "../../core/stores/cloudflare/index.ts";
import {
  answerCall,
  type ObjectAnswer,
  type ObjectCall,
  type ObjectStorage,
} from "../../core/stores/cloudflare/object-calls.ts";
import {
  ObjectDatabase,
  type ObjectNamespace,
} from "../../core/stores/cloudflare/object-database.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { type SqlStore, type SqlStoreOptions, sqlStore } from "../../core/stores/sql/store.ts";
import type { LambdaContext } from "../invocation/invocation.ts";
import { sweepHandler } from "../lambda/schedule/sweep-handler.ts";
import { logFailedRun } from "../telemetry/log-line.ts";

/** The members that `lockstepObject` adds to a class. */
interface LockstepObject {
  /** The object's locks, stock, runs and tables, without a request to another machine: for methods of your own. */
  readonly store: SqlStore;

  /**
   * The workflows that the object executes, as a field of your class. Default none. Alarms wake the object for runs that
   * are due, also those that another process started, and for schedules.
   */
  readonly workflows: readonly AnyWorkflow[];

  /** The entities whose operations the object's alarms handle, as a field of your class. Default none. */
  readonly entities: readonly ObjectEntity[];

  /** The runtime of these workflows and entities. */
  readonly runtime: Runtime;

  /** Executes what is due, and sets the next alarm. Cloudflare calls it. */
  alarm(): Promise<void>;

  /**
   * Executes a call of the store that `open` returns.
   *
   * @internal
   */
  lockstep(call: ObjectCall): Promise<ObjectAnswer>;
}

/** The class that `lockstepObject` returns. */
interface LockstepClass extends Class<LockstepObject> {
  /**
   * Opens the store in the object with this name. All locks, stock and runs of a name are in one object: choose a name per
   * shop or per tenant.
   * For instance: `await using shop = Shop.open(env.SHOP, "teapots")`.
   *
   * Open it within the request: Workers refuse objects that another request has opened.
   */
  open(namespace: ObjectNamespace, name: string, options?: SqlStoreOptions): SqlStore;
}

/** The part of a Durable Object's state that Lockstep uses. */
interface ObjectState {
  readonly storage: ObjectStorage & { setAlarm(time: number): Promise<void> };
  blockConcurrencyWhile(work: () => Promise<void>): Promise<void>;
}

/** The base class and the result of a mixin. The compiler wants the parameters of both to be `any`. */
// biome-ignore lint/suspicious/noExplicitAny: see above
type Class<T> = new (...given: any[]) => T;

// biome-ignore lint/suspicious/noExplicitAny: entities of any state and handlers
type ObjectEntity = Entity<any, any>;

/** The longest work of one alarm. Workers allow 15 minutes. */
const ALARM_TIME: Millis = 600_000;

/** The most sweeps of one alarm at a time, each of which may wait for a slow step. */
const SWEEPS_AT_ONCE = 8;

/** The pause before another alarm for runs that are due and cannot be executed here, or after a failure. */
const PAUSE: Millis = 10_000;

/**
 * Returns a class of Durable Objects that keep locks, stock and runs in their SQLite. `Base` is Cloudflare's class.
 * For instance: `class Shop extends lockstepObject(DurableObject) { workflows = [placeOrder]; }`
 */
export function lockstepObject<Base extends Class<object>>(Base: Base): Base & LockstepClass {
  class Stored extends (Base as Class<object>) implements LockstepObject {
    static open(...given: Parameters<typeof openDurableObject>): SqlStore {
      return openDurableObject(...given);
    }

    readonly store: SqlStore;
    readonly workflows: readonly AnyWorkflow[] = [];
    readonly entities: readonly ObjectEntity[] = [];
    readonly #storage: ObjectState["storage"];

    #runtime: Runtime | undefined;

    /** The time of the next alarm, as far as it is known. */
    #alarmAt = Number.POSITIVE_INFINITY;

    /** Whether an alarm is at work, and whether work was added meanwhile. */
    #isAwake = false;
    #hasNew = false;

    /** Begins another sweep of the alarm that is at work. */
    #beginSweep: (() => void) | undefined;
    #cancelSweep = () => {};

    constructor(...given: unknown[]) {
      super(...given);
      const [state] = given as [ObjectState];
      this.#storage = state.storage;
      const database = new ObjectDatabase("the Durable Object", async (call) =>
        this.#answer(call, true),
      );
      this.store = sqlStore(database, {});
      // No call is answered before the tables are there.
      void state.blockConcurrencyWhile(async () => {
        await migrate(database);
        if (this.#hasWork) await this.#setAlarm(Date.now());
      });
    }

    get #hasWork(): boolean {
      return this.workflows.length > 0 || this.entities.length > 0;
    }

    /** Made on first use: by then, the fields of the user's class are there. */
    get runtime(): Runtime {
      const { workflows, entities } = this;
      const { journal, locks } = this.store;
      const owner = "durable-object";
      this.#runtime ??= createRuntime({ journal, locks, workflows, entities, owner });
      return this.#runtime;
    }

    async lockstep(call: ObjectCall): Promise<ObjectAnswer> {
      return this.#answer(call, false);
    }

    async alarm(): Promise<void> {
      this.#alarmAt = Number.POSITIVE_INFINITY;
      this.#isAwake = true;
      this.#hasNew = false;
      try {
        const isBusy = await this.#sweepAll();
        const { nextIn } = await this.runtime.startScheduled();
        if (nextIn < Number.POSITIVE_INFINITY) await this.#setAlarm(Date.now() + nextIn);
        this.#isAwake = false;
        await this.#setNextAlarm(isBusy || this.#hasNew ? 0 : PAUSE);
      } catch (error) {
        await this.#setAlarm(Date.now() + PAUSE);
        throw error;
      } finally {
        this.#isAwake = false;
      }
    }

    /** Executes what is due, and what becomes due meanwhile. Resolves to whether anything was done. */
    async #sweepAll(): Promise<boolean> {
      const startedAt = instant();
      const context = { getRemainingTimeInMillis: () => ALARM_TIME - elapsedSince(startedAt) };
      const sweeps = new Set<Promise<boolean>>();
      let atWork = 0;
      const begin = () => {
        if (atWork === SWEEPS_AT_ONCE) return;
        atWork += 1;
        const sweep = this.#sweep(context).finally(() => {
          atWork -= 1;
        });
        sweep.catch(() => {});
        sweeps.add(sweep);
      };
      this.#beginSweep = begin;
      begin();
      // Also those that begin meanwhile.
      for (const sweep of sweeps) await sweep.catch(() => {});
      this.#beginSweep = undefined;
      this.#cancelSweep();
      return (await Promise.all(sweeps)).includes(true);
    }

    /** Executes what is due. Resolves to whether anything was done: a run whose next step needs more time stays due. */
    async #sweep(context: LambdaContext): Promise<boolean> {
      let undone = 0;
      const onOutcome = (outcome: RunOutcome<unknown>) => {
        if (outcome.status === "suspended" && outcome.reason === "deadline") undone += 1;
        logFailedRun(outcome);
      };
      const done = await sweepHandler(this.runtime, { onOutcome })(null, context);
      return done.completed + done.failed + done.suspended + done.delivered > undone;
    }

    /** An alarm's own changes count at its end: it would wake itself without a pause. */
    #answer(call: ObjectCall, isOwn: boolean): ObjectAnswer {
      const answer = answerCall(this.#storage, call);
      if (!this.#hasWork || !writes(call, CHANGES_WORK)) return answer;
      const isNew = !isOwn || writes(call, ADDS_WORK);
      if (isOwn && this.#isAwake) this.#hasNew ||= isNew;
      // The object's answers wait until the alarm is written.
      else void this.#setNextAlarm(0);
      this.#setNextSweep(isNew);
      return answer;
    }

    /** Begins another sweep when a run is due: it must not wait for the slow step of another one. */
    #setNextSweep(isNew: boolean): void {
      if (!this.#beginSweep) return;
      const wait = this.#dueAt() - Date.now();
      // What an alarm cannot execute for now stays due.
      if (wait <= 0 && !isNew) return;
      this.#cancelSweep();
      this.#cancelSweep = after(wait, this.#beginSweep);
    }

    /** Sets the alarm for the first work that the object can do, and for what is due already after `pause` milliseconds. */
    async #setNextAlarm(pause: Millis): Promise<void> {
      const dueAt = this.#dueAt();
      if (dueAt === Number.POSITIVE_INFINITY) return;
      const now = Date.now();
      await this.#setAlarm(dueAt > now ? dueAt : now + pause);
    }

    /** The time of the first work that the object can do. */
    #dueAt(): number {
      const runs = this.#sources().flatMap((source) => this.#first(FIRST_DUE, ...source));
      const operations = this.entities.flatMap(({ name }) => this.#first(FIRST_WAITING, name));
      return Math.min(...runs, ...operations) / 1_000;
    }

    #sources(): readonly Source[] {
      const queues = new Set([DEFAULT_QUEUE, ...this.workflows.map(({ queue }) => queue)]);
      return [...queues].flatMap((queue) =>
        this.workflows.map(({ name, version }): Source => [queue, name, version]),
      );
    }

    /** The microseconds of the time `at` in the row that the query finds, if there is one. */
    #first(query: string, ...values: readonly (string | number)[]): readonly number[] {
      const [first] = this.#storage.sql.exec(query, ...values).toArray();
      return first?.at == null ? [] : [Number(first.at)];
    }

    async #setAlarm(time: number): Promise<void> {
      if (time >= this.#alarmAt) return;
      this.#alarmAt = time;
      await this.#storage.setAlarm(Math.ceil(time));
    }
  }
  return Stored as unknown as Base & LockstepClass;
}

/** The runs that a claim of due runs considers. */
type Source = [queue: string, workflow: string, version: number];

/** The index `lockstep_run_due` answers it. */
const FIRST_DUE = `
  SELECT MIN(due_at) AS at FROM lockstep_run WHERE queue = ? AND workflow = ? AND version = ?`;

/** An operation that another turn has claimed waits for the end of its lease. */
const FIRST_WAITING = `
  SELECT MIN(MAX(waits_since, held_until)) AS at FROM lockstep_entity WHERE entity = ? AND waits_since > 0`;

/** Whether the call commits a statement of this kind. A call that commits executes the earlier ones of its transaction again. */
function writes({ queries, transaction }: ObjectCall, kind: RegExp): boolean {
  const { before = [], commits = true } = transaction ?? {};
  return commits && [...before, ...queries].some(({ text }) => kind.test(text));
}

/** Statements that may make a run due, or an operation of an entity wait. */
const CHANGES_WORK = /\b(?:INTO|UPDATE) lockstep_(?:run|entity)\b/;

/** Statements of calls that may make a run due at once or add one, or an operation of an entity: start, signal, cancel, retry, tell. */
const ADDS_WORK =
  /\bINTO lockstep_(?:run|message|signal)\b|\bcancelled = CASE WHEN cancelled = 0\b|\breopened_by = /;
