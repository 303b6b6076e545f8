import { quote } from "../lock/errors.ts";
import { nextTurn } from "../lock/event-loop.ts";
import { MisuseError } from "./errors.ts";

/** A step whose function runs in the current async context. */
interface RunningStep {
  /** The execution that the step belongs to. */
  readonly execution: object;
  readonly key: string;

  /** The error of a call of the execution's own context. */
  misuse?: MisuseError;
}

/** The part of Node's AsyncLocalStorage that is used. */
interface AsyncContext<T> {
  run<R>(value: T, fn: () => R): R;
  getStore(): T | undefined;
}

interface Runtime {
  readonly process?: {
    getBuiltinModule?(name: "node:async_hooks"): {
      readonly AsyncLocalStorage: new <T>() => AsyncContext<T>;
    };
  };
}

/** Not an import, which runtimes without Node's modules refuse. On these, no misuse inside a step or handler is noticed. */
const hooks = (globalThis as Runtime).process?.getBuiltinModule?.("node:async_hooks");
const runningStep = asyncContext<RunningStep>();

/** Makes a value per async context. */
export function asyncContext<T>(): AsyncContext<T> {
  if (hooks) return new hooks.AsyncLocalStorage<T>();
  return { run: (_, fn) => fn(), getStore: () => undefined };
}

/**
 * Calls a step's function. Rejects with a MisuseError if the function calls the context of its own run, even if
 * it ignores the error of that call.
 */
export async function callStep<T>(
  execution: object,
  key: string,
  fn: () => Promise<T>,
): Promise<T> {
  const running: RunningStep = { execution, key };
  const [settled] = await Promise.allSettled([runningStep.run(running, async () => fn())]);
  if (running.misuse) throw running.misuse;
  if (settled.status === "rejected") throw settled.reason;
  return settled.value;
}

const handledUpdate = asyncContext<HandledUpdate>();

/** An update whose handler runs, and the calls of the context that the handler has begun. */
export class HandledUpdate {
  readonly name: string;
  #calls = 0;

  constructor(name: string) {
    this.name = name;
  }

  /** The update whose handler runs in the current async context. */
  static get current(): HandledUpdate | undefined {
    return handledUpdate.getStore();
  }

  /** Whether the handler waits for a call. Undefined where the runtime does not tell who calls. */
  get isInCall(): boolean | undefined {
    return hooks && this.#calls > 0;
  }

  run<T>(handler: () => Promise<T>): Promise<T> {
    return handledUpdate.run(this, handler);
  }

  /** Notes that the handler waits for the call, until that ends. */
  begin(call: Promise<unknown>): void {
    const end = () => {
      this.#calls -= 1;
    };
    this.#calls += 1;
    call.then(end, end);
  }
}

/** The part of an execution that is told of a misuse, whether or not the body catches the error. */
interface Misusable {
  /** Stops the execution with the error. */
  misuse(error: MisuseError): never;

  /** Whether the body goes on no more. */
  readonly isBodyOver: boolean;
}

/** The calls that a workflow's body makes in one execution. Finds misuses without regard to time. */
export class BodyCalls {
  readonly #execution: Misusable;

  /** The calls that nobody has awaited, with their names for the error. */
  readonly #unawaited = new Map<Promise<unknown>, string>();

  /** The steps in progress. */
  readonly #held = new Set<Promise<unknown>>();

  /** The names of calls in progress that have no keys of their own. */
  readonly #names = new Set<string>();

  constructor(execution: Misusable) {
    this.#execution = execution;
  }

  /**
   * Makes a call that the body has to await.
   *
   * A call that fails before the body awaits it is no unhandled rejection, which would end the process: the failure is
   * in the journal, and the branch that awaits the call may be parked.
   */
  begin<T>(method: string, name: string, work: () => Promise<T>): Promise<T> {
    const call = this.beginValue(method, work);
    const promise = new CallPromise<T>((resolve) => resolve(call));
    handled(promise);
    this.#unawaited.set(promise, `ctx.${method} ${quote(name)}`);
    promise.onAwaited = () => {
      this.#unawaited.delete(promise);
      // A handler may await a call that the body has begun, but no next history.
      if (method !== "continueAsNew") HandledUpdate.current?.begin(call);
    };
    return promise;
  }

  /**
   * Makes a call that the body need not await. Never settles once the body is over: code that catches each error and calls
   * again would keep the event loop.
   */
  beginValue<T>(method: string, work: () => Promise<T>): Promise<T> {
    const call = async () => {
      this.#checkOutsideSteps(method);
      return this.#execution.isBodyOver ? new Promise<never>(() => {}) : work();
    };
    const promise = handled(call());
    HandledUpdate.current?.begin(promise);
    return promise;
  }

  /** Delays the end of the body until the step has ended: a step that has lost a race is recorded as well. */
  hold<T>(step: Promise<T>): Promise<T> {
    const release = () => this.#held.delete(step);
    this.#held.add(step);
    step.then(release, release);
    return step;
  }

  /**
   * Reserves a name until the call ends. Throws a MisuseError if another call in progress has it: which of the two gets
   * which key would depend on time.
   */
  reserve(name: string): Disposable {
    if (this.#names.has(name)) {
      const problem = `two calls of the name ${quote(name)} are in progress at the same time`;
      const advice = "give each step a `key`, or each call a name of its own";
      this.#execution.misuse(new MisuseError(`${problem}; ${advice}`));
    }
    this.#names.add(name);
    return { [Symbol.dispose]: () => void this.#names.delete(name) };
  }

  /** Resolves when all steps have ended. Rejects with a MisuseError, at once, if a call was not awaited. */
  async end(): Promise<void> {
    for (const call of this.#unawaited.values()) {
      this.#execution.misuse(new MisuseError(`${call} was not awaited; await it in the body`));
    }
    while (this.#held.size > 0) {
      await Promise.allSettled(this.#held);
      // The branch that awaits a step may begin the next one.
      await nextTurn();
    }
  }

  #checkOutsideSteps(method: string): void {
    const running = runningStep.getStore();
    if (running?.execution !== this.#execution) return;
    const problem = `step ${quote(running.key)} calls ctx.${method} inside its function`;
    running.misuse ??= new MisuseError(`${problem}; call it in the workflow's body`);
    throw running.misuse;
  }
}

/** A promise that reports when the code awaits it. */
class CallPromise<T> extends Promise<T> {
  onAwaited = () => {};

  /** Promises that follow from it are ordinary ones. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  // biome-ignore lint/suspicious/noThenProperty: `await`, `catch` and Promise.race call `then`
  override then: Promise<T>["then"] = (onFulfilled, onRejected) => {
    this.onAwaited();
    return super.then(onFulfilled, onRejected);
  };
}

function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
