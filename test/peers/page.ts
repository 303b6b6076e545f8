import { type MeasuredCode, nameCode } from "../support/commit.ts";
import { Legend, table } from "../support/markdown.ts";
import { FAULTS, type Fault, OPERATION_FAULTS } from "./faults.ts";
import type { Outcome, Trial } from "./try-lock.ts";
import type { OperationOutcome, ServiceTrial } from "./try-service.ts";

/** The results of `npm run peers`. */
export interface PeersRun extends MeasuredCode {
  readonly date: string;

  /** What its numbers do not mean. */
  readonly note?: string;
  readonly seed: number;

  /** The ttl of the locks, in milliseconds. */
  readonly ttl: number;
  readonly trials: readonly Trial[];
  readonly services: readonly ServiceTrial[];
}

/** The last two runs, as docs/peers.json has them. */
export interface PeersRuns {
  readonly runs: readonly PeersRun[];
}

/** A row of a table. */
interface Contested {
  readonly name: string;
  readonly package: string;
  readonly server: string;
  readonly usage: string;
  readonly outcomes: readonly Contest[];

  /** Why the other faults were not tried. */
  readonly untried: Readonly<Record<string, string>>;
}

interface Contest {
  readonly fault: string;
  readonly rounds: number;
  readonly stuck: number;
  readonly crashed: number;

  /** What the resource has lost, by its name. */
  readonly losses: Readonly<Record<string, number>>;

  /** In milliseconds. */
  readonly pause: number;
}

export type Verdict = "safe" | "loses" | "stuck" | "crashed";

/** What was lost by each lock and each service under each fault. */
export function peersTables(run: PeersRun): string {
  return `${lossTable("lock", locksOf(run))}\n\n${lossTable("service", servicesOf(run))}\n`;
}

/** The part of the page of the proof that compares locks and services. */
export function peersSection({ runs }: PeersRuns): string {
  const last = runs.at(-1) as PeersRun;
  const { date, note, seed, ttl } = last;
  const locks = locksOf(last);
  const services = servicesOf(last);
  const rounds = Math.max(...locks.flatMap(({ outcomes }) => outcomes.map((one) => one.rounds)));
  return `## The same faults on other locks

\`npm run peers -- --rounds ${rounds} --seed ${seed} --write\` tries each lock as its documentation says it is used (run on ${date} on the code of ${nameCode(last)}; the seed determines the order of the faults, and
the holder and the server that each one meets). Four processes take one lock, read a number, work, ask
their lock whether they still hold it, and write the number plus one. The ttl is ${ttl / 1_000} s. Each fault meets a holder ${rounds} times. The table has the updates that
were lost: another process had written between a holder's read and its write. "Stuck": within 30 s nobody got the lock. "Crashed":
processes that ended by an error of the package. The counts differ from run to run. Of the [faults of the campaigns](#campaigns-on-real-servers), these are not tried:
single lost messages, full and compacted stores, leaders that are replaced or cut off, and clocks of clients. Our own locks are tried without their fence on four kinds of
stores: Redis, Redis Sentinel, etcd and PostgreSQL.

${lossTable("lock", locks)}

Lockstep alone hands on a token that the resource compares, and so refuses what no check before the write can: a holder that stops after it has
asked. Without the token it loses that update as well. The locks of database sessions lose nothing here, since the client notices the end
of its session, and nobody gets the lock from a frozen holder: all others wait until it goes on, or its connection ends (see the pauses below).

${stories(FAULTS, locks)}

${usageTable("lock", locks)}

The longest time in which nobody got the lock, in seconds:

${pauseTable("lock", locks)}

## The same operation, delivered twice

The same command tries packages that execute an operation once, each as its documentation says it is used. A queue delivers an operation to a process. A fault meets this execution, and the queue delivers the operation to a second process until
that answers. When the first process has ended its execution, a third one is asked for the answer. An execution may take ${ttl / 1_000} s until another process
may take the operation over. "Twice": the effect was there more than once. "Lost": the effect did not happen. "Overwritten": the third
process got another answer than the second. "Stuck": no answer within 30 s. "Crashed": processes that ended by an error that nothing could catch; nothing was
lost by that alone.

${lossTable("service", services)}

An effect outside of the store is executed twice when its first executor is late or ends before the record: no record can prevent that. The service here is no
payment provider: it knows no idempotency keys, by which a provider recognizes the repetition, and compares fences, by which it refuses the late effect of an
executor that was frozen before it. Keys, which [the guarantees](guarantees.md#a-worker-is-frozen) ask for, were not tried. An effect in the transaction of its record is there once. Lambda kills a function at its timeout, but delivers what the function has sent.

**Takeover or wait.** Lockstep has a lease: another process takes the operation over when it ends, also from a process that lives and is frozen or cut off, whose
effect may already be there. DBOS is tried without Conductor, and has no lease then: nobody takes an operation over before its own process starts again. So a
frozen or cut-off process has its effect once, and delays the answer until it goes on (see the waits below).

${stories(OPERATION_FAULTS, services)}

${usageTable("service", services)}

The longest time from the first delivery until the second one was answered, in seconds:

${pauseTable("service", services)}
${note ? `\n${note}.\n` : ""}
The first executor of a \`step.tx\` holds the rows of its open transaction while it is frozen or cut off: its successor takes the run after one lease, and then
waits for these rows until the first goes on. No fault lasts for the 10 s after which the server rolls a silent transaction back
(\`test/faults/silent-transactions.all.server.test.ts\` tests that). A plain step holds no rows.

## The verdicts of two runs

${verdictsOf(runs)}
`;
}

/** Whether a lock or service lost anything, stood still, or ended its process. */
export function verdictOf({ losses, stuck, crashed }: Contest): Verdict {
  if (Object.values(losses).some((lost) => lost > 0)) return "loses";
  if (stuck > 0) return "stuck";
  return crashed > 0 ? "crashed" : "safe";
}

/** The verdicts of a run, by the names of the lock or service and of the fault. */
function verdicts(run: PeersRun): ReadonlyMap<string, Verdict> {
  return new Map(
    [...locksOf(run), ...servicesOf(run)].flatMap(({ name, outcomes }) =>
      outcomes.map((contest) => [`${name}, ${contest.fault}`, verdictOf(contest)] as const),
    ),
  );
}

function verdictsOf(runs: readonly PeersRun[]): string {
  const [before, last] = runs;
  if (!before || !last) return "There is one run alone: repeat the command.";
  const former = verdicts(before);
  const latter = [...verdicts(last)];
  const others = latter.filter(([cell, verdict]) => former.get(cell) !== verdict);
  const seeds = `\`--seed ${before.seed}\` and \`--seed ${last.seed}\``;
  const same = `Of ${latter.length} cells of both tables, ${latter.length - others.length} have the same verdict in the last two runs (${seeds}): safe, loses, stuck, or crashed.`;
  if (others.length === 0) return same;
  const rows = others.map(([cell, verdict]) => [cell, former.get(cell) ?? "not tried", verdict]);
  return `${same} These differ:\n\n${table(["", "first run", "second run"], rows)}`;
}

export function locksOf({ trials }: PeersRun): readonly Contested[] {
  const toContest = ({ lost, longestPause, ...rest }: Outcome): Contest => {
    return { ...rest, losses: { lost }, pause: longestPause };
  };
  return trials.map(({ lock, outcomes, untried = {}, ...rest }) => {
    return { ...rest, untried, name: lock, outcomes: outcomes.map(toContest) };
  });
}

export function servicesOf({ services }: PeersRun): readonly Contested[] {
  const toContest = ({ twice, lost, overwritten, longestWait, ...rest }: OperationOutcome) => {
    return { ...rest, losses: { twice, lost, overwritten }, pause: longestWait };
  };
  return services.map(({ service, outcomes, ...rest }) => {
    return { ...rest, untried: {}, name: service, outcomes: outcomes.map(toContest) };
  });
}

function lossTable(kind: string, rows: readonly Contested[]): string {
  return faultTable(kind, rows, ({ losses, stuck, crashed }) => {
    const lost = Object.entries(losses).filter(([, count]) => count > 0);
    const parts = [
      ...lost.map(([name, count]) => `**${count} ${name}**`),
      ...(stuck > 0 ? [`${stuck} stuck`] : []),
      ...(crashed > 0 ? [`${crashed} crashed`] : []),
    ];
    return parts.length > 0 ? parts.join(", ") : "0";
  });
}

function pauseTable(kind: string, rows: readonly Contested[]): string {
  return faultTable(kind, rows, ({ pause }) => (pause / 1_000).toFixed(1));
}

/** A table with a column for each fault. A letter says why a fault was not tried. */
function faultTable(
  kind: string,
  rows: readonly Contested[],
  cell: (contest: Contest) => string,
): string {
  const legend = new Legend();
  const faults = faultsOf(rows);
  const cells = ({ outcomes, untried }: Contested) =>
    faults.map((fault) => {
      const contest = outcomes.find((each) => each.fault === fault);
      return contest ? cell(contest) : legend.letterOf(untried[fault] ?? "not a part of this run");
    });
  const all = table(
    [kind, ...faults],
    rows.map((row) => [row.name, ...cells(row)]),
  );
  return legend.lines.length > 0 ? [all, "", ...legend.lines].join("\n") : all;
}

/** The faults of a run: those that were tried, and those that a server cannot have. */
function faultsOf(rows: readonly Contested[]): readonly string[] {
  const all = rows.flatMap(({ outcomes, untried }) => [
    ...outcomes.map(({ fault }) => fault),
    ...Object.keys(untried),
  ]);
  return [...new Set(all)];
}

function usageTable(kind: string, rows: readonly Contested[]): string {
  return table(
    [kind, "package", "server", "usage"],
    rows.map(({ name, package: from, server, usage }) => [name, from, server, usage]),
  );
}

function stories(
  faults: Readonly<Record<string, Pick<Fault, "story">>>,
  rows: readonly Contested[],
): string {
  const tried = faultsOf(rows);
  const lines = Object.entries(faults)
    .filter(([name]) => tried.includes(name))
    .map(([name, { story }]) => `- *${name}*: ${story}.`);
  return lines.join("\n");
}
