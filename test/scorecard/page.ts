import type { Benchmarks } from "../bench/page.ts";
import { isCaught, type Report } from "../mutants/page.ts";
import { locksOf, type PeersRuns, servicesOf, verdictOf } from "../peers/page.ts";
import { isProven } from "../prove/page.ts";
import type { Proof } from "../prove/prove.ts";
import { nameCode } from "../support/commit.ts";
import { table } from "../support/markdown.ts";

export interface Results {
  readonly proof: Proof;
  readonly mutants: Report;
  readonly benchmarks: Benchmarks;
  readonly peers: PeersRuns;

  /** The tests in the files of the project. */
  readonly tests: number;

  /** The rows of the page of defects. */
  readonly defects: number;
}

/** Writes the page that has all results at a glance. */
export function scorecardPage(results: Results): string {
  return `# Scorecard

What was measured, on one page. \`npm run scorecard\` makes it from the results of \`npm run prove\`, \`mutants\`, \`peers\` and \`bench\`, which the links lead to,
with the commands that repeat them. [What was not tested](proof.md#not-tested), by store.

${runsTable(results)}

## Proof

${proofTable(results)}

## Losses under the same faults

Each fault meets the holder of a lock, or the executor of an operation. Some of them cost an update, an effect or an answer. A count leaves out how long others
wait: DBOS, tried without Conductor, repeats no effect of a frozen or cut-off process, and [waits for it](proof.md#the-same-operation-delivered-twice).

${peersTable(results)}

## Aims of the benchmarks

${benchmarksTable(results)}
`;
}

/** When and on which code each result was measured. */
function runsTable({ proof, mutants, peers, benchmarks }: Results): string {
  const runs = {
    "[proof](proof.md)": proof,
    "[mutants](mutants.md), the last trial": mutants,
    "[losses](proof.md#the-same-faults-on-other-locks)": peers.runs.at(-1),
    "[benchmarks](benchmarks.md)": benchmarks,
  };
  return table(
    ["results", "of", "code"],
    Object.entries(runs).map(([name, run]) => [name, run?.date ?? "", run ? nameCode(run) : ""]),
  );
}

function proofTable({ proof, mutants, tests, defects }: Results): string {
  const { models, simulation, campaigns } = proof;
  const modelMutants = models.flatMap((model) => model.mutants);
  const states = sumOf(models.map((model) => model.states));
  const stores = [...new Set(campaigns.map(({ store }) => store))];
  const operations = sumOf(campaigns.map((report) => report.operations));
  const refused = sumOf(campaigns.map(({ lateRefused }) => lateRefused));
  const campaignFaults = sumOf(
    campaigns.flatMap(({ faults }) =>
      Object.values(faults).map((count) => ("met" in count ? count.met : 0)),
    ),
  );
  const violations = sumOf(campaigns.map((report) => report.violations.length));
  const planted = proof.mutants.filter(({ caughtBy }) => caughtBy).length;
  const caught = mutants.trials.filter(isCaught).length;
  return table(
    ["means", "tried", "result", ""],
    [
      [
        `models of ${models.length} protocols, all their states`,
        `${count(states)} states, ${modelMutants.length} mutants`,
        `${violated(models.filter(({ violation }) => violation).length)}, ${modelMutants.filter(({ violation }) => violation).length} mutants caught`,
        "[models](proof.md#models)",
      ],
      [
        "simulation of the code on a virtual clock",
        `${count(simulation.schedules)} schedules, ${count(sumOf(Object.values(simulation.faults)))} faults`,
        violated(simulation.failure?.violations.length ?? 0),
        "[simulation](proof.md#simulation)",
      ],
      [
        "defects planted in the code, against the simulation",
        count(proof.mutants.length),
        `${planted} caught`,
        "[mutants of the code](proof.md#mutants-of-the-code)",
      ],
      [
        `campaigns on real servers: ${stores.join(", ")}`,
        `${count(operations)} operations, ${count(campaignFaults)} faults`,
        `${violated(violations)}, ${count(refused)} uses under old fences refused`,
        "[campaigns](proof.md#campaigns-on-real-servers)",
      ],
      [
        "tests, on real servers where a store is one",
        `more than ${count(Math.floor(tests / 100) * 100)}`,
        "run by `npm test`",
        "[contributing](../CONTRIBUTING.md)",
      ],
      [
        "defects planted in all parts, against the tests",
        count(mutants.trials.length),
        `${count(caught)} caught, ${percent(caught, mutants.trials.length)}`,
        "[mutants](mutants.md)",
      ],
      [
        "defects that were found and mended",
        count(defects),
        "each has a test",
        "[defects](defects.md)",
      ],
    ],
  ).concat(
    isProven(proof)
      ? ""
      : "\n\n**The last run of `npm run prove` broke a guarantee, or caught not every mutant.**",
  );
}

function peersTable({ peers: { runs } }: Results): string {
  const [last] = runs.slice(-1);
  if (!last) return "There is no run.";
  const rows = [...locksOf(last), ...servicesOf(last)].map(({ name, package: from, outcomes }) => {
    const losing = outcomes.filter((contest) => ["loses", "stuck"].includes(verdictOf(contest)));
    const crashing = outcomes.filter((contest) => verdictOf(contest) === "crashed");
    const share = `${losing.length} of ${outcomes.length}`;
    return [
      name,
      from,
      losing.length > 0 ? `**${share}**` : share,
      losing.map(({ fault }) => fault).join(", "),
      crashing.map(({ fault }) => fault).join(", "),
    ];
  });
  return `${table(["lock or service", "package", "faults with a loss", "which", "crashed, without a loss"], rows)}

[The counts, and how each one is used](proof.md#the-same-faults-on-other-locks), with the verdicts of [two runs](proof.md#the-verdicts-of-two-runs).`;
}

function benchmarksTable({ benchmarks: { suites } }: Results): string {
  const rows = suites.map(({ suite, ratios }) => {
    const missed = ratios.filter(({ met }) => !met);
    return [
      suite,
      `${ratios.length - missed.length} of ${ratios.length}`,
      missed.map(({ name, value, aim }) => `${name}: ${value} (aim ${aim})`).join("; "),
    ];
  });
  const ratios = suites.flatMap((suite) => suite.ratios);
  const total = `${ratios.filter(({ met }) => met).length} of ${ratios.length}`;
  return `${table(["suite", "aims met", "missed"], [...rows, ["**all**", `**${total}**`, ""]])}

[Benchmarks](benchmarks.md), with their intervals and machine.`;
}

function violated(times: number): string {
  return times === 0 ? "no violation" : `**${count(times)} violations**`;
}

function percent(part: number, whole: number): string {
  return `${((100 * part) / whole).toFixed(1)} %`;
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}

function count(number: number): string {
  return number.toLocaleString("en");
}
