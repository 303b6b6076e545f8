import type { Random } from "./random.ts";

/** The time by all clocks when a world begins, in milliseconds since 1970. */
const BEGINNING = Date.UTC(2030, 0, 1);

/** One process with a machine of its own: the clocks that its code reads, and whether the code runs. */
export class Machine {
  readonly name: string;

  /** For its code: `Math.random` and `crypto`. */
  readonly random: Random;

  /** How fast its clocks run. */
  readonly rate: number;
  isAlive = true;
  frozenUntil = 0;

  /** Until then the store cannot be reached. */
  cutOffUntil = 0;

  /** After a freeze, either the timers or the messages come first. */
  timersFirst = true;
  monotonicOffset = 0;
  wallOffset = 0;

  constructor(name: string, random: Random, rate = 1) {
    this.name = name;
    this.random = random;
    this.rate = rate;
  }
}

interface Event {
  at: number;
  readonly order: number;
  readonly machine: Machine;
  readonly isTimer: boolean;

  /** Undefined when the timer is cleared. */
  run: (() => void) | undefined;
}

/** More events mean that a program of the world never ends. */
const MOST_EVENTS = 50_000;

/** A turn of Node's event loop costs as much as an event. At its end, a promise without a handler ends the process. */
const EVENTS_PER_TURN = 10;

/** Node's, before `installVirtualClock`. */
const nextTurn = setImmediate;

/**
 * Machines on one true clock. One event happens after the other: all code that an event has made runnable has run
 * before the next event. A machine that is frozen gets its events when it thaws, and one that is dead never.
 */
export class World {
  /** The true time since the beginning, in milliseconds. */
  now = 0;

  /** The machine whose code runs. */
  machine: Machine;
  onError: (error: unknown) => void = () => {};
  #order = 0;

  /** The next event comes last. */
  readonly #events: Event[] = [];

  constructor(machine: Machine) {
    this.machine = machine;
  }

  /** Calls `run` on the machine after `delay` milliseconds of true time. */
  post(machine: Machine, delay: number, run: () => void, isTimer = false): Event {
    this.#order += 1;
    const at = this.now + Math.max(0, delay);
    const event = { at, order: this.#order, machine, isTimer, run };
    this.#insert(event);
    return event;
  }

  /** Freezes the machine. A monotonic clock that stops delays its timers. */
  freeze(machine: Machine, span: number, options: { stopsClock: boolean; timersFirst: boolean }) {
    machine.frozenUntil = Math.max(machine.frozenUntil, this.now + span);
    machine.timersFirst = options.timersFirst;
    if (!options.stopsClock) return;
    machine.monotonicOffset -= span * machine.rate;
    const timers = this.#events.filter((event) => event.machine === machine && event.isTimer);
    for (const timer of timers) {
      this.#events.splice(this.#events.indexOf(timer), 1);
      timer.at += span;
      this.#insert(timer);
    }
  }

  /** Runs all events. Resolves to whether the world has come to rest. */
  run(): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    let count = 0;
    const turn = () => {
      const event = this.#next();
      count += 1;
      if (!event || count > MOST_EVENTS) {
        world = undefined;
        resolve(!event);
        return;
      }
      this.machine = event.machine;
      try {
        event.run?.();
      } catch (error) {
        this.onError(error);
      }
      if (count % EVENTS_PER_TURN === 0) nextTurn(turn);
      // Ticks come after all microtasks, also after those that microtasks add.
      else queueMicrotask(() => process.nextTick(turn));
    };
    world = this;
    turn();
    return promise;
  }

  #next(): Event | undefined {
    for (;;) {
      const event = this.#events.pop();
      if (!event) return undefined;
      if (!event.run || !event.machine.isAlive) continue;
      this.now = Math.max(this.now, event.at);
      const { frozenUntil, timersFirst } = event.machine;
      if (frozenUntil <= this.now) return event;
      event.at = frozenUntil + (event.isTimer === timersFirst ? 0 : 0.001);
      this.#insert(event);
    }
  }

  #insert(event: Event): void {
    let [low, high] = [0, this.#events.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const other = this.#events[middle] as Event;
      const isLater = other.at > event.at || (other.at === event.at && other.order > event.order);
      if (isLater) low = middle + 1;
      else high = middle;
    }
    this.#events.splice(low, 0, event);
  }
}

/** The world whose events are happening. */
let world: World | undefined;

function current(): World {
  if (!world) throw new Error("no world is running");
  return world;
}

const monotonic = () => {
  const { now, machine } = current();
  return now * machine.rate + machine.monotonicOffset;
};

const wall = () => {
  const { now, machine } = current();
  return Math.floor(BEGINNING + now * machine.rate + machine.wallOffset);
};

/** The store's clock in microseconds since 1970. */
export function microsOf(machine: Machine, now: number): number {
  return Math.round((BEGINNING + now * machine.rate + machine.wallOffset) * 1_000);
}

/**
 * Replaces the clocks, timers and random numbers of this thread by those of the machine whose code runs. To be called
 * before the product is loaded.
 */
export function installVirtualClock(): void {
  const RealDate = Date;
  class VirtualDate extends RealDate {
    constructor(...args: readonly unknown[]) {
      super(...((args.length === 0 ? [wall()] : args) as [number]));
    }

    static override now = wall;
  }
  const setTimer = (run: (...args: unknown[]) => void, span = 1, ...args: unknown[]) => {
    const { machine } = current();
    const timer = current().post(
      machine,
      Math.max(1, span) / machine.rate,
      () => run(...args),
      true,
    );
    return Object.assign(timer, { unref: () => timer, ref: () => timer });
  };
  const clearTimer = (timer: Event | undefined) => {
    if (timer) timer.run = undefined;
  };
  Object.assign(globalThis, {
    Date: VirtualDate,
    setTimeout: setTimer,
    clearTimeout: clearTimer,
    setImmediate: (run: () => void) => current().post(current().machine, 0, run),
    clearImmediate: clearTimer,
  });
  Object.defineProperty(performance, "now", { value: monotonic });
  Math.random = () => current().machine.random.float();
  Object.defineProperties(crypto, {
    randomUUID: { value: randomUuid },
    getRandomValues: {
      value: (array: Uint32Array) => array.map(() => current().machine.random.uint32()),
    },
  });
}

function randomUuid(): string {
  const { random } = current().machine;
  const [a, b, c, d] = [hex(random), hex(random), hex(random), hex(random)];
  return `${a}-${b.slice(0, 4)}-${b.slice(4)}-${c.slice(0, 4)}-${c.slice(4)}${d}`;
}

function hex(random: Random): string {
  return random.uint32().toString(16).padStart(8, "0");
}
