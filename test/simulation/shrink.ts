import type { Check } from "./history.ts";
import type { ClientPlan, Plan } from "./plan.ts";
import type { Result, Simulator } from "./simulate.ts";

/** The smallest schedule that was found to fail in the same check. */
export interface Shrunk {
  readonly violations: Result["violations"];
  readonly clients: number;
  readonly operations: number;
  readonly faults: number;
  readonly trace: readonly string[];
}

/** The most schedules that are tried. */
const MOST_TRIALS = 1_000;

/** Leaves out clients, operations and faults for as long as the schedule fails in the same check. */
export async function shrink(simulator: Simulator, plan: Plan): Promise<Shrunk> {
  let best = { plan, result: await simulator.run(plan) };
  const check = best.result.violations[0]?.check;
  let trials = 0;
  const simplify = async () => {
    for (const simpler of check ? simplerPlans(best.plan, best.result) : []) {
      trials += 1;
      if (trials > MOST_TRIALS) return false;
      const result = await simulator.run(simpler);
      if (!failsIn(result, check)) continue;
      best = { plan: simpler, result };
      return true;
    }
    return false;
  };
  while (await simplify());
  const { violations, trace, faults } = best.result;
  const programs = best.plan.clients.flatMap((client) => client.programs);
  return {
    violations,
    clients: best.plan.clients.length,
    operations: programs.flat().length,
    faults: [...faults.values()].reduce((sum, count) => sum + count, 0),
    trace,
  };
}

function failsIn({ violations }: Result, check: Check | undefined): boolean {
  return violations.some((violation) => violation.check === check);
}

/** The largest steps come first. */
function* simplerPlans(plan: Plan, { faultyRequests }: Result): Iterable<Plan> {
  const { clients } = plan;
  const withClients = (changed: readonly ClientPlan[]): Plan => ({ ...plan, clients: changed });
  const withClient = (at: number, change: Partial<ClientPlan>) =>
    withClients(clients.with(at, { ...(clients[at] as ClientPlan), ...change }));
  for (const [i] of clients.entries()) yield withClients(clients.toSpliced(i, 1));
  if (plan.storeJumps.length > 0) yield { ...plan, storeJumps: [] };
  for (const [i, { programs, faults }] of clients.entries()) {
    for (const [j] of programs.entries()) {
      if (programs.length > 1) yield withClient(i, { programs: programs.toSpliced(j, 1) });
    }
    for (const [j, operations] of programs.entries()) {
      for (const [k] of operations.entries()) {
        yield withClient(i, { programs: programs.with(j, operations.toSpliced(k, 1)) });
      }
    }
    for (const [j] of faults.entries()) yield withClient(i, { faults: faults.toSpliced(j, 1) });
  }
  for (let size = faultyRequests.length; size >= 1; size = Math.floor(size / 2)) {
    for (let at = 0; at < faultyRequests.length; at += size) {
      const spared = new Set([...plan.spared, ...faultyRequests.slice(at, at + size)]);
      yield { ...plan, spared };
    }
  }
}
