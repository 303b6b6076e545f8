import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { FaultContext } from "../campaign/nemesis.ts";
import { type CampaignStore, STORES } from "../campaign/stores.ts";
import { Random } from "../simulation/random.ts";
import { until } from "../support/until.ts";
import {
  droppedBy,
  FAULTS,
  type FaultName,
  type Holder,
  type LockFault,
  type Untried,
} from "./faults.ts";
import { CONTESTANTS, type Contestant, type ContestantName } from "./locks.ts";
import type { LockOptions } from "./named-lock.ts";
import { Processes } from "./processes.ts";
import { type Counts, Register } from "./register.ts";
import { inSeededOrder, STUCK, type TrialOptions } from "./trial.ts";

/** What became of one fault, over all its rounds. */
export interface Outcome extends Counts {
  readonly fault: FaultName;
  readonly rounds: number;

  /** Contenders that ended by an error that nothing could catch. */
  readonly crashed: number;

  /** Rounds after which nobody got the lock within 30 s, so that all contenders had to be started anew. */
  readonly stuck: number;

  /** The longest time in which nobody got the lock, in milliseconds. */
  readonly longestPause: number;
}

export interface Trial {
  readonly lock: string;
  readonly package: string;
  readonly usage: string;
  readonly server: string;
  readonly outcomes: readonly Outcome[];

  /** Why the other faults were not tried. Earlier runs have no such reasons. */
  readonly untried?: Untried;
}

const CONTENDERS = 4;
const CONTENDER = fileURLToPath(new URL("./contender.ts", import.meta.url));

/** How many turns show that the line moves again, and that nobody works any more who began beside the holder of a fault. */
const TURNS_AFTER = 2 * CONTENDERS;

/** Injects each fault into the holder of a lock, or into its server, and counts what the resource has lost. */
export async function tryLock(
  name: ContestantName,
  options: TrialOptions<FaultName>,
): Promise<Trial> {
  const { rounds, ttl, onProgress } = options;
  const contestant: Contestant = CONTESTANTS[name];
  const random = new Random(options.seed);
  await using store = await STORES[contestant.store](onProgress);
  await contestant.prepare?.(store.directUrl);
  const register = await Register.open();
  using _ = { [Symbol.dispose]: () => register.close() };
  await using processes = await Processes.start({
    count: CONTENDERS,
    script: CONTENDER,
    server: { url: store.directUrl, nodes: store.nodes },
    argsOf: (reach) => [
      name,
      JSON.stringify({ ...reach, ttl } satisfies LockOptions),
      register.url,
    ],
  });
  await until(() => register.counts.turns > 0);
  const contenders = { processes, register, store, random, ttl };
  const untried = untriedOn(store, options.faults);
  const faults = options.faults.filter((fault) => untried[fault] === undefined);
  const outcomes = await inSeededOrder({ ...options, faults }, random, async (fault) => {
    register.reset();
    processes.crashed = 0;
    let stuck = 0;
    for (let round = 1; round <= rounds; round += 1) {
      onProgress(`${name}: ${fault}, ${round} of ${rounds}`);
      if (!(await meet(FAULTS[fault], contenders))) stuck += 1;
      await store.settle?.();
    }
    const { counts, longestPause } = register;
    const { crashed } = processes;
    return { fault, rounds, ...counts, crashed, stuck, longestPause: Math.round(longestPause) };
  });
  return {
    lock: name,
    package: contestant.package ?? "this package",
    usage: contestant.usage,
    server: store.version,
    outcomes,
    untried,
  };
}

/** Says why a store cannot have some of the faults. */
export function untriedOn(
  { faults }: Pick<CampaignStore, "faults">,
  names: readonly FaultName[],
): Untried {
  const reasons = names.map((name) => {
    const { needs }: LockFault = FAULTS[name];
    const reason = needs && faults[needs];
    return typeof reason === "string" ? { [name]: reason } : {};
  });
  return Object.assign({}, ...reasons);
}

interface Contenders {
  readonly processes: Processes;
  readonly register: Register;
  readonly store: CampaignStore;
  readonly random: Random;
  readonly ttl: number;
}

/** Injects a fault into a holder, and waits until the lock has gone round again. Otherwise starts all contenders anew. */
async function meet(fault: LockFault, contenders: Contenders): Promise<boolean> {
  const { at, work, lasts, needs = "wires", begin, end } = fault;
  const { processes, register, store, random, ttl } = contenders;
  const spare = random.below(CONTENDERS);
  const node = random.pick(store.nodes);
  const pause = () => sleep(lasts * ttl);
  const acts: Pick<Holder, "restart" | "inject"> = {
    async restart() {
      await node.kill("SIGKILL");
      await store.repair?.(node);
      await node.start();
    },
    inject: await prepare(needs, store, { random, pause }),
  };
  let holder: Holder | undefined;
  let begun: unknown;
  const { pid, what } = await register.ambush.lay({
    at,
    work: work * ttl,
    spare,
    begin(met) {
      const contender = processes.byPid(met);
      if (!contender) return;
      holder = { ...contender, ...acts, node, dropped: droppedBy(contender.wires) };
      begun = begin(holder);
    },
  });
  await Promise.all([pause(), begun]);
  // A process that has just ended by itself is no holder.
  if (!holder) return meet(fault, contenders);
  await end?.(holder);
  const hasEnded = () => !register.isWorking(what) || !processes.byPid(pid);
  try {
    await until(hasEnded, STUCK);
    const { turns } = register.counts;
    await until(() => register.counts.turns >= turns + TURNS_AFTER, STUCK);
    return true;
  } catch {
    processes.kill();
    const stuckAt = register.counts.turns;
    await until(() => register.counts.turns > stuckAt);
    return false;
  }
}

/** Prepares a fault of the campaigns, so that it acts at once, and returns what makes it act. */
async function prepare(
  name: NonNullable<LockFault["needs"]>,
  { faults }: CampaignStore,
  context: Pick<FaultContext, "random" | "pause">,
): Promise<() => Promise<void>> {
  const fault = faults[name];
  const prepared = Promise.withResolvers<void>();
  const acting = Promise.withResolvers<void>();
  const ready = () => {
    prepared.resolve();
    return acting.promise;
  };
  const over = typeof fault === "function" ? fault({ ...context, ready }) : Promise.resolve(false);
  await Promise.race([prepared.promise, over]);
  return async () => {
    acting.resolve();
    if (!(await over)) throw new Error(`the fault "${name}" has met nothing`);
  };
}
