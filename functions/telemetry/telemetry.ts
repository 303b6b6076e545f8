import type { StockListener } from "../../core/inventory/observed.ts";
import type { LockListener } from "../../core/lock/events.ts";
import { listener } from "../../core/lock/listener.ts";
import type { Around } from "../../core/steps/around.ts";
import type { RunListener } from "../../core/steps/events.ts";

/** Something that is told of all that happens. What it throws costs no lock, no stock and no run anything. */
export interface Telemetry {
  /** For `open(url, { onEvent: telemetry.lock })`, and every store of locks. */
  readonly lock: LockListener;

  /** For `observed(inventory, telemetry.stock)`. */
  readonly stock: StockListener;

  /** For `createRuntime({ …, ...telemetry.runtime })`. */
  readonly runtime: { readonly onEvent: RunListener; readonly around: Required<Around> };
}

/** What a runtime is given, with somebody else who is told of its runs. */
export function tellingToo({ runtime }: Telemetry, other: RunListener): Telemetry["runtime"] {
  return { ...runtime, onEvent: eachOf([other, runtime.onEvent]) };
}

/** All of them; the first one's context is the outermost. */
export function together(...all: readonly Telemetry[]): Telemetry {
  const arounds = all.map(({ runtime }) => runtime.around).reverse();
  return {
    lock: eachOf(all.map(({ lock }) => lock)),
    stock: eachOf(all.map(({ stock }) => stock)),
    runtime: {
      onEvent: eachOf(all.map(({ runtime }) => runtime.onEvent)),
      around: {
        run: (run, body) => arounds.reduce((inner, one) => () => one.run(run, inner), body)(),
        step: (step, body) => arounds.reduce((inner, one) => () => one.step(step, inner), body)(),
      },
    },
  };
}

/** What one of them throws does not keep the others from being told. */
function eachOf<Event>(hooks: readonly ((event: Event) => void)[]): (event: Event) => void {
  const listeners = hooks.map((hook) => listener(hook));
  return (event) => {
    for (const tell of listeners) tell(event);
  };
}
