import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { ServerNode } from "../../infra/servers/server.ts";
import { Random } from "../simulation/random.ts";
import { until } from "../support/until.ts";
import { FAULTS, type Fault, type FaultName, type Victim } from "./faults.ts";
import { CONTESTANTS, type Contestant, type ContestantName } from "./locks.ts";
import type { LockOptions } from "./named-lock.ts";
import { Processes } from "./processes.ts";
import { type Counts, Register } from "./register.ts";
import { inSeededOrder, STUCK, startDurable, type TrialOptions } from "./trial.ts";

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
}

const CONTENDERS = 4;
const CONTENDER = fileURLToPath(new URL("./contender.ts", import.meta.url));

/** How many turns show that the line moves again. */
const TURNS_AFTER = 2 * CONTENDERS;

/** Injects each fault into the holder of a lock, or into its server, and counts what the resource has lost. */
export async function tryLock(
  name: ContestantName,
  options: TrialOptions<FaultName>,
): Promise<Trial> {
  const { rounds, ttl, onProgress } = options;
  const contestant: Contestant = CONTESTANTS[name];
  const random = new Random(options.seed);
  await using server = await startDurable(contestant.server, onProgress);
  await contestant.prepare?.(server.url);
  const register = await Register.open();
  using _ = { [Symbol.dispose]: () => register.close() };
  await using processes = await Processes.start({
    count: CONTENDERS,
    script: CONTENDER,
    server,
    argsOf: (reach) => [
      name,
      JSON.stringify({ ...reach, ttl } satisfies LockOptions),
      register.url,
    ],
  });
  await until(() => register.counts.turns > 0);
  const contenders = { processes, register, ttl };
  const outcomes = await inSeededOrder(options, random, async (fault): Promise<Outcome> => {
    register.reset();
    processes.crashed = 0;
    let stuck = 0;
    for (let round = 1; round <= rounds; round += 1) {
      onProgress(`${name}: ${fault}, ${round} of ${rounds}`);
      const spare = random.below(CONTENDERS);
      if (await meet(FAULTS[fault], random.pick(server.nodes), { ...contenders, spare })) continue;
      stuck += 1;
    }
    const { counts, longestPause } = register;
    const { crashed } = processes;
    return { fault, rounds, ...counts, crashed, stuck, longestPause: Math.round(longestPause) };
  });
  return {
    lock: name,
    package: contestant.package ?? "this package",
    usage: contestant.usage,
    server: server.version,
    outcomes,
  };
}

interface Contenders {
  readonly processes: Processes;
  readonly register: Register;
  readonly ttl: number;

  /** How many holders are spared before the fault. */
  readonly spare: number;
}

/** Injects a fault into a holder, and waits until the lock has gone round again. Otherwise starts all contenders anew. */
async function meet(
  { at, work, lasts, begin, end }: Fault,
  node: ServerNode,
  { processes, register, ttl, spare }: Contenders,
): Promise<boolean> {
  let victim: Victim | undefined;
  const { pid, what } = await register.ambush.lay({
    at,
    work: work * ttl,
    spare,
    begin(met) {
      const contender = processes.byPid(met);
      if (!contender) return;
      victim = { ...contender, node };
      begin(victim);
    },
  });
  await sleep(lasts * ttl);
  if (victim) await end?.(victim);
  const { turns } = register.counts;
  const hasEnded = () => !register.isWorking(what) || !processes.byPid(pid);
  const goesOn = () => hasEnded() && register.counts.turns >= turns + TURNS_AFTER;
  try {
    await until(goesOn, STUCK);
    return true;
  } catch {
    processes.kill();
    const stuckAt = register.counts.turns;
    await until(() => register.counts.turns > stuckAt);
    return false;
  }
}
