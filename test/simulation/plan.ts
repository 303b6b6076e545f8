import { Random } from "./random.ts";

/** What a client does. An `id` is an operation id, or the id of a run: clients that share one do the same work twice. */
export type Operation =
  /** Under the lock: reads the counter, thinks, and writes one more. */
  | {
      readonly kind: "count";
      readonly id: string;
      readonly think: number;
      readonly wait: number;

      /** Whether it makes sure of the lock for longer than its ttl. */
      readonly ensures: boolean;
    }
  /** Sells under the lock and its fence, or without both. */
  | {
      readonly kind: "sell";
      readonly id: string;
      readonly quantity: number;
      readonly isFenced: boolean;
      readonly think: number;
    }
  /** Sells in one batch under the lock. */
  | { readonly kind: "sell-many"; readonly ids: readonly string[]; readonly think: number }
  | {
      readonly kind: "reserve";
      readonly id: string;
      readonly quantity: number;
      readonly expiresIn: number;
      readonly end: "confirm" | "cancel" | undefined;
      readonly think: number;
    }
  /** Takes two locks together without renewal, and keeps them for a while or to the end. */
  | { readonly kind: "both"; readonly think: number; readonly isToTheEnd: boolean }
  | { readonly kind: "run"; readonly id: string; readonly fails: boolean; readonly pause: number }
  | { readonly kind: "cancel"; readonly id: string; readonly after: number };

export const MACHINE_FAULTS = [
  "crash",
  "freeze",
  "freeze with its clock",
  "clock jump",
  "partition",
] as const;

/** A fault of the machine, some milliseconds after the client has sent its request of this number. */
export interface MachineFault {
  readonly kind: (typeof MACHINE_FAULTS)[number];
  readonly request: number;
  readonly delay: number;

  /** In milliseconds: until the restart, the thaw or the end of the partition, or the step of the clock. */
  readonly span: number;
}

export interface ClientPlan {
  readonly name: string;

  /** How fast its clock runs: the allowance for drift is 1 %. */
  readonly rate: number;

  /** Programs that run at the same time, each one a sequence of operations. */
  readonly programs: readonly (readonly Operation[])[];
  readonly faults: readonly MachineFault[];
}

/** A schedule: what the clients do and which faults they meet. The seed alone determines it. */
export interface Plan {
  readonly seed: number;
  readonly ttl: number;
  readonly stock: number;

  /** How long the store keeps a transaction whose client is silent, in milliseconds. */
  readonly longestSilence: number;
  readonly clients: readonly ClientPlan[];

  /** The share of the requests that meet a fault of the network. */
  readonly faultRate: number;

  /** Requests without a fault, as "client:number". A failing schedule is shrunk by them. */
  readonly spared: ReadonlySet<string>;

  /** Steps of the store's clock: time and span in milliseconds. With them, a lock may end early, and fences alone protect. */
  readonly storeJumps: readonly { readonly at: number; readonly span: number }[];
}

/** Makes the schedule of a seed. */
export function planOf(seed: number): Plan {
  const random = new Random(seed);
  const ttl = random.pick([100, 150, 300]);
  const makers = random.pick(THEMES);
  const size = random.pick([2, 2, 3, 3, 4]);
  const clients = Array.from({ length: size }, (_, i) => clientOf(random, i, ttl, makers));
  const hasJumps = random.chance(0.1);
  return {
    seed,
    ttl,
    stock: 2 + random.below(8),
    longestSilence: random.pick([20, 250]),
    clients,
    faultRate: random.pick([0.15, 0.25, 0.4]),
    spared: new Set(),
    storeJumps: hasJumps
      ? [{ at: random.between(0, 3 * ttl), span: random.between(-2, 3) * ttl }]
      : [],
  };
}

function clientOf(
  random: Random,
  index: number,
  ttl: number,
  makers: readonly Maker[],
): ClientPlan {
  const programs = Array.from({ length: random.chance(0.2) ? 2 : 1 }, () =>
    Array.from({ length: 1 + random.below(2) }, () => random.pick(makers)(random, ttl)),
  );
  // A lock is safe while one of the two clocks is right: a client has one wrong clock at the most.
  const wrong = random.pick(["clock jump", "freeze with its clock"]);
  const kinds = MACHINE_FAULTS.filter((kind) => kind !== wrong);
  const faults = Array.from({ length: random.pick([0, 1, 1, 2]) }, () => {
    const kind = random.pick(kinds);
    // Now and then longer than any call is patient.
    const jump = random.between(-7, 15);
    const isLong = kind === "partition" && random.chance(0.1);
    return {
      kind,
      request: random.below(10),
      delay: random.between(0, 8),
      span: isLong ? 15_000 : (kind === "clock jump" ? jump : random.between(0.3, 2.5)) * ttl,
    };
  });
  const name = String.fromCharCode("a".charCodeAt(0) + index);
  return { name, rate: random.pick([0.991, 1.009, 1]), programs, faults };
}

type Maker = (random: Random, ttl: number) => Operation;

/** Few ids and units, so that clients meet. */
const saleId = (random: Random) => `sale-${random.below(4)}`;
const units = (id: string, random: Random) =>
  // Now and then another change under the same id, which has to be refused.
  random.chance(0.1) ? 3 : 1 + (Number(id.at(-1)) % 2);

const count: Maker = (random, ttl) => ({
  kind: "count",
  id: `count-${random.uint32()}`,
  think: random.between(0, 1.2) * ttl,
  wait: random.pick([0, ttl, 4 * ttl]),
  ensures: random.chance(0.2),
});

const sell: Maker = (random, ttl) => {
  const id = saleId(random);
  return {
    kind: "sell",
    id,
    quantity: units(id, random),
    isFenced: random.chance(0.6),
    think: random.between(0, 1) * ttl,
  };
};

const sellMany: Maker = (random, ttl) => ({
  kind: "sell-many",
  ids: [saleId(random), saleId(random)],
  think: random.between(0, 1) * ttl,
});

const reserve: Maker = (random, ttl) => {
  const number = random.below(3);
  return {
    kind: "reserve",
    id: `reserve-${number}`,
    quantity: 1,
    expiresIn: ([0.3, 1, 20].at(number) ?? 1) * ttl,
    end: random.pick(["confirm", "cancel", undefined]),
    think: random.between(0, 0.8) * ttl,
  };
};

const both: Maker = (random, ttl) => ({
  kind: "both",
  think: random.between(0, 1.2) * ttl,
  isToTheEnd: random.chance(0.5),
});

const run: Maker = (random, ttl) => {
  const number = random.below(2);
  return {
    kind: "run",
    id: `run-${number}`,
    fails: number === 1,
    // All starts of a run have one input.
    pause: (number === 1 ? 0.05 : 0.2) * ttl,
  };
};

const cancel: Maker = (random, ttl) => ({
  kind: "cancel",
  id: `run-${random.below(2)}`,
  after: random.between(0, 0.5) * ttl,
});

const THEMES: readonly (readonly Maker[])[] = [
  [count],
  [count, count, both],
  [sell],
  [sell, sellMany],
  [sell, reserve],
  [sell, reserve, sellMany, count, both],
  [run],
  [run, run, cancel],
  [run, cancel],
];
