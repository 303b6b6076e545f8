import { DEFAULT_QUEUE } from "../../core/journal/turn-order.ts";
import type { Millis } from "../../core/lock/time.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
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
import { sweepHandler } from "../lambda/schedule/sweep-handler.ts";

/** The members that `lockstepObject` adds to a class. */
interface LockstepObject {
  /** The object's locks, stock, runs and tables, without a request to another machine: for methods of your own. */
  readonly store: SqlStore;

  /**
   * The workflows that the object executes, as a field of your class. Default none. Alarms wake the object for runs that
   * are due, also those that another process started, and for schedules.
   */
  readonly workflows: readonly AnyWorkflow[];

  /** The runtime of these workflows. */
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

/** The longest work of one alarm. Workers allow 15 minutes. */
const ALARM_TIME: Millis = 600_000;

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
    readonly #storage: ObjectState["storage"];

    #runtime: Runtime | undefined;

    /** The time of the next alarm, as far as it is known. */
    #alarmAt = Number.POSITIVE_INFINITY;

    constructor(...given: unknown[]) {
      super(...given);
      const [state] = given as [ObjectState];
      this.#storage = state.storage;
      const database = new ObjectDatabase("the Durable Object", async (call) => this.#answer(call));
      this.store = sqlStore(database, {});
      // No call is answered before the tables are there.
      void state.blockConcurrencyWhile(async () => {
        await migrate(database);
        if (this.workflows.length > 0) await this.#setAlarm(Date.now());
      });
    }

    /** Made on first use: by then, the fields of the user's class are there. */
    get runtime(): Runtime {
      const { store, workflows } = this;
      const { journal, locks } = store;
      this.#runtime ??= createRuntime({ journal, locks, workflows, owner: "durable-object" });
      return this.#runtime;
    }

    async lockstep(call: ObjectCall): Promise<ObjectAnswer> {
      return this.#answer(call);
    }

    async alarm(): Promise<void> {
      this.#alarmAt = Number.POSITIVE_INFINITY;
      const context = { getRemainingTimeInMillis: () => ALARM_TIME };
      try {
        const { completed, failed, suspended } = await sweepHandler(this.runtime)(null, context);
        const { nextIn } = await this.runtime.startScheduled();
        if (nextIn < Number.POSITIVE_INFINITY) await this.#setAlarm(Date.now() + nextIn);
        await this.#setNextAlarm(completed + failed + suspended > 0 ? 0 : PAUSE);
      } catch (error) {
        await this.#setAlarm(Date.now() + PAUSE);
        throw error;
      }
    }

    #answer(call: ObjectCall): ObjectAnswer {
      const answer = answerCall(this.#storage, call);
      // The object's answers wait until the alarm is written.
      if (this.workflows.length > 0 && changesRuns(call)) void this.#setNextAlarm(0);
      return answer;
    }

    /** Sets the alarm for the first due run that the object can execute, after `least` milliseconds at the earliest. */
    async #setNextAlarm(least: Millis): Promise<void> {
      const dueAt = Math.min(...this.#sources().flatMap((source) => this.#firstDue(source)));
      if (dueAt === Number.POSITIVE_INFINITY) return;
      await this.#setAlarm(Math.max(dueAt / 1_000, Date.now() + least));
    }

    #sources(): readonly Source[] {
      const queues = new Set([DEFAULT_QUEUE, ...this.workflows.map(({ queue }) => queue)]);
      return [...queues].flatMap((queue) =>
        this.workflows.map(({ name, version }): Source => [queue, name, version]),
      );
    }

    /** The microseconds of the time at which the first run from this source is due, if there is one. */
    #firstDue(source: Source): readonly number[] {
      const [first] = this.#storage.sql.exec(FIRST_DUE, ...source).toArray();
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

/** Whether the call may make a run due. */
function changesRuns({ queries, transaction }: ObjectCall): boolean {
  const isCommitted = transaction?.commits ?? true;
  return isCommitted && queries.some(({ text }) => /\b(?:INTO|UPDATE) lockstep_run\b/.test(text));
}
