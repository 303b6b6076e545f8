/**
 * Helpers for tests of workflows.
 *
 * With `skipPauses`, a runtime's sleeps and pauses take no time. The memory journal, the memory store and the engine
 * take the time from `setTimeout`, `performance.now` and `Date`, so that the fake timers of a test runner move them.
 * Between two answers, the engine also lets the real event loop turn once.
 */
import type { Database } from "../database/sql.ts";
import type { Journal } from "../journal/journal.ts";
import type { LockStore } from "../lock/lock.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import type { Runtime, RuntimeOptions, StartOptions } from "./contract.ts";
import {
  createRuntime,
  EXECUTE_OPTIONS,
  RUN_OPTIONS,
  RUNTIME_OPTIONS,
  START_OPTIONS,
} from "./runtime.ts";
import type { StepScope } from "./step-options.ts";
import type { AnyWorkflow, Workflow } from "./workflow.ts";
import { type Replace, withSteps } from "./wrap.ts";

export { checkReplay, exportRun, type ReplayReport } from "./replay-check.ts";

/** Called before each attempt of a step. The attempt fails with the error that it throws. */
type Fault = (scope: StepScope) => unknown;

/**
 * Returns the same workflow with faults in the steps of these names. A fault may also end the process:
 * `charge: () => process.kill(process.pid, "SIGKILL")`.
 */
export function withFaults<I, O>(
  workflow: Workflow<I, O>,
  faults: Readonly<Record<string, Fault>>,
): Workflow<I, O> {
  return withSteps(workflow as AnyWorkflow, (name, { fn, undo }) => {
    const fault = Object.hasOwn(faults, name) ? faults[name] : undefined;
    if (!fault) return undefined;
    // The scope is the last argument, with and without an item before it.
    const broken: typeof fn = async (...args) => {
      await fault(args.at(-1) as StepScope);
      return fn(...args);
    };
    return { fn: broken, undo };
  }) as Workflow<I, O>;
}

/** The replacements of a test runtime for the outside world. */
interface Fakes {
  /** Functions for the steps of these names, with the arguments of the real ones. Their undos do nothing. */
  readonly steps?: Readonly<Record<string, (...args: readonly never[]) => unknown>>;

  /** The payloads of these signals, in order. They are sent to each run that `execute`, `start` or `run` starts. */
  readonly signals?: Readonly<Record<string, readonly unknown[]>>;
}

const FAKES = { steps: true, signals: true } satisfies OptionNames<Fakes>;
const TEST_OPTIONS = { ...RUNTIME_OPTIONS, fake: true };

/**
 * Makes a runtime for tests on any journal: sleeps and pauses take no time, a wait for a signal that was not sent times
 * out at once, and steps and signals are faked by name.
 */
export function createTestRuntime(given: RuntimeOptions & { readonly fake?: Fakes }): Runtime {
  checkOptionNames("createTestRuntime", given, TEST_OPTIONS);
  checkOptionNames("fake", given?.fake, FAKES);
  const { fake: { steps = {}, signals = {} } = {}, ...options } = given ?? {};
  const replace: Replace = (name) => {
    const fn = Object.hasOwn(steps, name) ? steps[name] : undefined;
    return fn && { fn: async (...args) => fn(...(args as never[])), undo: async () => {} };
  };
  // One per workflow: the runtime knows a workflow by its identity.
  const known = new Map<AnyWorkflow, AnyWorkflow>();
  const fakeOf = (workflow: AnyWorkflow): AnyWorkflow => {
    const other = known.get(workflow) ?? withSteps(workflow, replace, fakeOf);
    known.set(workflow, other);
    return other;
  };
  const faked = <I, O>(workflow: Workflow<I, O>) =>
    fakeOf(workflow as AnyWorkflow) as Workflow<I, O>;
  const workflows = options.workflows?.map(fakeOf) ?? [];
  const runtime = createRuntime({ ...options, workflows, skipPauses: true });

  /** Starts the run with all its signals. */
  const begin = async <I, O>(workflow: Workflow<I, O>, input: I, options: StartOptions = {}) => {
    const { queue, key, priority, singleton, debounce } = options;
    const given = { queue, key, priority, singleton, debounce };
    // The journal chooses the id of a start with a key.
    const isKeyed = given.singleton !== undefined || given.debounce !== undefined;
    const own = isKeyed
      ? { id: options.id }
      : { id: (await workflow.prepare(input, options.id)).runId };
    const started = await runtime.start(faked(workflow), input, { ...given, ...own });
    const { status, runId: id } = started;
    const isOpen = status === "suspended" || status === "busy";
    for (const [name, payloads] of isOpen ? Object.entries(signals) : []) {
      for (const [i, payload] of payloads.entries()) {
        await runtime.signal(id, name, payload, { dedupeId: `fake ${i + 1}` });
      }
    }
    return started;
  };

  const calls: Pick<Runtime, "execute" | "run" | "start"> = {
    async execute(workflow, input, given) {
      checkOptionNames("execute", given, EXECUTE_OPTIONS);
      const { runId: id } = await begin(workflow, input, given);
      return runtime.execute(faked(workflow), input, { ...given, id });
    },
    async run(workflow, input, given) {
      checkOptionNames("run", given, RUN_OPTIONS);
      const { runId: id } = await begin(workflow, input, given);
      return runtime.run(faked(workflow), input, { ...given, id });
    },
    async start(workflow, input, given) {
      checkOptionNames("start", given, START_OPTIONS);
      return begin(workflow, input, given);
    },
  };
  return new Proxy(runtime, {
    get(target, name) {
      if (Object.hasOwn(calls, name)) return Reflect.get(calls, name);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/**
 * Called with "append:before" before a call named `append`, and with "append:after" when the call has settled. Calls
 * of a transaction are named "tx.batch" and "tx.commit".
 *
 * The call rejects with the error that the hook throws: as if the request, or its answer, was lost.
 */
type FaultHook = (point: string) => void | Promise<void>;

/** Returns the same store with the hook around all its calls, to kill, freeze or cut off the process there. */
export function injectFaults<T extends Database | Journal | LockStore>(
  store: T,
  hook: FaultHook,
): T {
  return around(store, hook, (name) => {
    return typeof name === "symbol" || name === "close" || name === "transaction"
      ? undefined
      : name;
  });
}

/** Returns the name of a call for the hook, or undefined for a call without one. */
type CallName = (name: string | symbol) => string | undefined;

function around<T extends object>(target: T, hook: FaultHook, callName: CallName): T {
  const get = (_: T, name: string | symbol) => {
    const value: unknown = Reflect.get(target, name);
    if (typeof value !== "function") return value;
    const call = (...given: readonly unknown[]) => {
      const args = given.map((arg) => aroundBody(arg, hook));
      return Reflect.apply(value, target, args);
    };
    const point = callName(name);
    if (point === undefined) return call;
    return async (...given: readonly unknown[]) => {
      await hook(`${point}:before`);
      try {
        return aroundHandle(await call(...given), hook);
      } finally {
        await hook(`${point}:after`);
      }
    };
  };
  return new Proxy(target, { get });
}

/** The handles that a body gets reach the store as well. */
function aroundBody(arg: unknown, hook: FaultHook): unknown {
  if (typeof arg !== "function") return arg;
  return (...given: readonly unknown[]) => arg(...given.map((one) => aroundHandle(one, hook)));
}

/** Wraps a transaction or a lock, and returns other values unchanged. */
function aroundHandle(value: unknown, hook: FaultHook): unknown {
  if (typeof value !== "object" || value === null) return value;
  if ("commit" in value) return around(value, hook, (name) => `tx.${String(name)}`);
  if ("unlock" in value) return around(value, hook, lockCallName);
  return value;
}

function lockCallName(name: string | symbol): string | undefined {
  if (name === Symbol.asyncDispose) return "unlock";
  return name === "unlock" || name === "ensure" ? name : undefined;
}
