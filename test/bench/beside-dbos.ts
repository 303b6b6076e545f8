import { table } from "../support/markdown.ts";
import type { SuiteReport } from "./suite.ts";

/** The numbers of runs at a time. */
export const RUNS = [1, 8] as const;

/** The kinds of steps that are compared with those of DBOS: the contenders, and the comparison. */
export const KINDS = [
  {
    text: "in a transaction, under locks in PostgreSQL",
    ours: "transacted steps, locks in the database",
    theirs: "transacted steps, DBOS (no locks)",
    comparison: "transacted steps, locks in the database, over DBOS's",
  },
  {
    text: "in a transaction, under locks in the memory of one process",
    ours: "transacted steps, locks in memory",
    theirs: "transacted steps, DBOS (no locks)",
    comparison: "transacted steps over DBOS's",
  },
  {
    text: "plain, without locks",
    ours: "plain steps",
    theirs: "plain steps, DBOS",
    comparison: "plain steps over DBOS's",
  },
] as const;

type Measured = Pick<SuiteReport, "results" | "ratios">;

/** Returns the rates of a kind of steps, and their ratio with its interval. */
export function ratioOf(
  { results, ratios }: Measured,
  { ours, theirs, comparison }: (typeof KINDS)[number],
  runs: number,
) {
  const rateOf = (name: string) => {
    const found = results.find((each) => each.name === `${name}, ${runs} at a time`);
    if (!found) throw new RangeError(`unknown contender "${name}"`);
    return found.perSec;
  };
  const ratio = ratios.find(({ name }) => name === `${comparison}, ${runs} at a time`);
  if (!ratio) throw new RangeError(`unknown comparison "${comparison}"`);
  const interval = [ratio.low.toFixed(2), ratio.high.toFixed(2)];
  return { ours: rateOf(ours), theirs: rateOf(theirs), value: ratio.value.toFixed(2), interval };
}

/** The part of the page that compares steps on one PostgreSQL with those of DBOS. */
export function besideDbos(report: Measured): string {
  const rows = KINDS.flatMap((kind) =>
    RUNS.map((runs) => {
      const { ours, theirs, value, interval } = ratioOf(report, kind, runs);
      return [
        kind.text,
        `${runs}`,
        ours.toLocaleString("en"),
        theirs.toLocaleString("en"),
        value,
        interval.join(" to "),
      ];
    }),
  );
  return `### Beside DBOS

${table(
  ["steps", "runs at a time", "per second", "DBOS, per second", "ratio", "95 % interval"],
  rows,
)}

- Below 1, DBOS is faster; where the interval includes 1, the difference is not certain. A ratio is the median over the rounds, and so not the quotient of the
  two rates, which are medians as well.
- DBOS has no locks, and its transactions are those of its data source. Locks in memory serve one process: several workers need the first rows. A \`step.tx\` without a
  lock, which is what a transaction of DBOS is, was not measured.
- A run has 20 steps; the p50 and p99 below are those of a whole run. A step in a transaction inserts one row.
- One client process and the server, on one machine: no network, no second worker. The server has its default settings, so every commit is durable.
- Pools: 16 connections and three for Lockstep, 8 for DBOS's system database and 8 for its data source. Both have the isolation level read committed.
- \`npm run bench -- --suite postgres\` repeats the measurement in a clone, after \`npm ci\`. It needs PostgreSQL on the PATH, Debian and root to install it, or Docker; and
  npm, to install the peers.`;
}
