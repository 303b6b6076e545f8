import type { StockEvent } from "../../core/inventory/events.ts";
import { wrongType } from "../../core/lock/checks.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import { listener } from "../../core/lock/listener.ts";
import { EngineFailure, Suspension } from "../../core/steps/errors.ts";
import type { RunEvent } from "../../core/steps/events.ts";
import type { InterceptedStep, Interceptor } from "../../core/steps/interceptor.ts";

/** The listeners for all events of locks, stock and runs. An error of a listener affects no lock, stock or run. */
export interface Telemetry {
  /** For `open(url, { onEvent: telemetry.lock })`, and every store of locks. */
  readonly lock: (event: LockEvent) => void;

  /** For `open(url, { onStockEvent: telemetry.stock })`, and the `onEvent` of every inventory. */
  readonly stock: (event: StockEvent) => void;

  /** For `createRuntime({ …, ...telemetry.runtime })`. */
  readonly runtime: {
    readonly onEvent: (event: RunEvent) => void;
    readonly onError?: (
      error: unknown,
      at: Partial<InterceptedStep> & Pick<InterceptedStep, "runId" | "workflow">,
    ) => void;
    readonly interceptor: Required<Interceptor>;
  };
}

/** Some of the listeners. */
export interface PartialTelemetry extends Partial<Omit<Telemetry, "runtime">> {
  readonly runtime?: {
    readonly onEvent?: (event: RunEvent) => void;
    readonly onError?: (
      error: unknown,
      at: Partial<InterceptedStep> & Pick<InterceptedStep, "runId" | "workflow">,
    ) => void;
    readonly interceptor?: Interceptor;
  };
}

/** Combines the listeners. The interceptor of the first one is the outermost. */
export function combineTelemetry(...all: readonly PartialTelemetry[]): Telemetry {
  for (const one of all) {
    if (typeof one !== "object" || one === null) throw wrongType("telemetry", "an object", one);
  }
  const interceptors = all.flatMap(({ runtime }) => runtime?.interceptor ?? []).reverse();
  return {
    lock: callEach(all.map(({ lock }) => lock)),
    stock: callEach(all.map(({ stock }) => stock)),
    runtime: {
      onEvent: callEach(all.map(({ runtime }) => runtime?.onEvent)),
      onError: callEach(all.map(({ runtime }) => runtime?.onError)),
      interceptor: {
        run: (run, body) =>
          interceptors.reduce((inner, one) => () => one.run?.(run, inner) ?? inner(), body)(),
        step: (step, body) =>
          interceptors.reduce((inner, one) => () => one.step?.(step, inner) ?? inner(), body)(),
      },
    },
  };
}

/** An error of one listener does not keep the other listeners from being called. */
function callEach<Arguments extends readonly unknown[]>(
  hooks: readonly (((...given: Arguments) => void) | undefined)[],
): (...given: Arguments) => void {
  const listeners = hooks.map((hook) => listener(hook));
  return (...given) => {
    for (const tell of listeners) tell(...given);
  };
}

/** The cause of a rejection of an interceptor's body. */
export interface Failure {
  readonly outcome: "failed" | "parked";

  /** Undefined for a run that was only parked. */
  readonly error?: unknown;
}

export function failureOf(thrown: unknown): Failure {
  if (thrown instanceof Suspension) return { outcome: "parked" };
  return { outcome: "failed", error: thrown instanceof EngineFailure ? thrown.error : thrown };
}
