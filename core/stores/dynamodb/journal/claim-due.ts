import type { DueQuery, DueRun } from "../../../journal/queries.ts";
import { isOpen } from "../../../journal/runs.ts";
import type { WaitingRun } from "../../../journal/turn-order.ts";
import { sleep } from "../../../lock/abort.ts";
import { quote } from "../../../lock/errors.ts";
import { backoff } from "../../../lock/retry.ts";
import type { ChangePlan } from "./documents.ts";
import { planClaim, type Taken, toClaimed } from "./lease.ts";
import { type LimitUse, readUse } from "./limits.ts";
import {
  duePlace,
  endOf,
  fromTimed,
  type Head,
  isDue,
  type JournalContext,
  kept,
  SHARDS,
  timed,
} from "./runs.ts";
import { batchesOf } from "./values.ts";

/** The due runs of a queue that one claim looks at, in each of its places: those that are due longest. */
const MOST_SEEN = 2_000;

/** Claims that are sent at a time. */
const AT_ONCE = 16;

interface About {
  readonly workflow: string;
  readonly version: number;
  readonly key?: string | undefined;
  readonly priority: number;
  readonly parent?: string | undefined;
}

/**
 * Claims due runs in the order of their turns, each with a transaction of its own: another process may be first.
 *
 * A claim from a limited queue also counts it, and is refused after another claim from the queue.
 */
export async function claimDue(
  context: JournalContext,
  query: DueQuery,
  signal: AbortSignal | undefined,
): Promise<readonly DueRun[]> {
  for (let count = 0; ; count += 1) {
    const found = await readWaiting(context, query, signal);
    if (found.length === 0) return [];
    const waiting = context.turns.sort(found);
    const use = await readUse(context, query.queues, waiting);
    const { admission } = use;
    const admitted = admission.take(waiting, query.limit);
    if (Number.isFinite(admission.retryIn)) query.onHeldBack?.(admission.retryIn);
    if (admitted.length === 0) return [];
    const taken = await claimAll(context, admitted, query, use, signal);
    if (taken.length > 0) {
      const answers = await Promise.allSettled(
        taken.map(async (one) => ({ runId: one.head.runId, ...(await toClaimed(context, one)) })),
      );
      const read = answers.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
      const failed = answers.find((one) => one.status === "rejected");
      if (failed && read.length === 0) throw failed.reason;
      return read;
    }
    await sleep(backoff(count), signal);
  }
}

/** Reads the due runs that the caller wants. */
async function readWaiting(
  { dynamodb, clock }: JournalContext,
  { queues, workflows, parent, except = [] }: DueQuery,
  signal: AbortSignal | undefined,
): Promise<readonly WaitingRun[]> {
  const left = new Set(except);
  const isWanted = (about: About, runId: string) =>
    workflows.some((one) => one.workflow === about.workflow && one.version === about.version) &&
    (parent === undefined || about.parent === parent) &&
    !left.has(runId);
  const read = async (queue: string, shard: string) => {
    const found: WaitingRun[] = [];
    const sentAt = performance.now();
    const to = endOf(timed(clock.now(), ""));
    const range = { pk: duePlace(shard, queue), from: "0", to, limit: 1_000 };
    for await (const { items, time } of dynamodb.query({ ...range, ...(signal && { signal }) })) {
      clock.see(time, sentAt);
      for (const { sk = "", about: text = "{}" } of items) {
        const about: About = JSON.parse(text);
        const { id, time: dueAt } = fromTimed(sk);
        const { workflow, key, priority } = about;
        if (isWanted(about, id)) {
          found.push({ runId: id, queue, workflow, key, priority, dueAt });
        }
      }
      if (found.length >= MOST_SEEN) break;
    }
    return found;
  };
  const readAll = async () => {
    const places = queues.flatMap((queue) => SHARDS.map((shard) => read(queue, shard)));
    return (await Promise.all(places)).flat();
  };
  const aheadBy = () => clock.now() - performance.now();
  const before = aheadBy();
  const found = await readAll();
  // A process that was frozen has learned the time from these answers.
  return aheadBy() - before < 1_000 ? found : readAll();
}

/** Claims the runs. Those of a limited queue one after another, until one is refused. */
async function claimAll(
  context: JournalContext,
  admitted: readonly WaitingRun[],
  query: DueQuery,
  use: LimitUse,
  signal: AbortSignal | undefined,
): Promise<readonly Taken[]> {
  const claim = async (run: WaitingRun) => {
    const taken = await claimOne(context, run, query, use, signal);
    if (taken) context.turns.taken(run);
    return taken;
  };
  const taken: Taken[] = [];
  const settle = (answers: readonly PromiseSettledResult<Taken | undefined>[]) => {
    const won = answers.flatMap((one) => (one.status === "fulfilled" ? (one.value ?? []) : []));
    taken.push(...won);
    const failed = answers.find((one) => one.status === "rejected");
    // The runs that were claimed before are the caller's.
    if (failed && taken.length === 0) throw failed.reason;
    return failed === undefined;
  };
  const free = admitted.filter(({ queue }) => !use.isLimited(queue));
  for (const some of batchesOf(free, AT_ONCE)) {
    if (!settle(await Promise.allSettled(some.map(claim)))) return taken;
  }
  for (const run of admitted.filter(({ queue }) => use.isLimited(queue))) {
    if (use.outdated.has(run.queue)) continue;
    const [answer] = await Promise.allSettled([claim(run)]);
    if (!settle([answer])) return taken;
  }
  return taken;
}

/** Claims a due run. Undefined: another process was first, or the limits have changed. */
function claimOne(
  context: JournalContext,
  run: WaitingRun,
  { owner, ttl }: DueQuery,
  use: LimitUse,
  signal: AbortSignal | undefined,
): Promise<Taken | undefined> {
  return context.runs
    .change<Taken | undefined>({
      ids: [run.runId],
      what: `run ${quote(run.runId)} was claimed`,
      signal,
      async plan([found], now): Promise<ChangePlan<Head, Taken | undefined>> {
        const head = kept(found, now);
        const isStill = head && isOpen(head.status) && isDue(head, now) && head.queue === run.queue;
        if (!isStill || use.outdated.has(run.queue)) return { result: undefined };
        return {
          ...(await planClaim(context, head, { owner, ttl }, now)),
          writes: use.count(run, now),
          refused() {
            use.outdated.add(run.queue);
          },
        };
      },
    })
    .then((taken) => {
      if (taken) use.counted(run, taken.now);
      return taken;
    });
}
