import type { MeasuredCode } from "../support/commit.ts";
import { table } from "../support/markdown.ts";
import type { Trial } from "./hunt.ts";
import type { TestedMutant } from "./mutant.ts";

/** The results of all mutants. */
export interface Report extends MeasuredCode {
  /** Of the last trial. */
  readonly date: string;
  readonly node: string;
  readonly trials: readonly Trial[];
}

/** The least share of mutants that tests catch. */
const LEAST = 0.97;

/** Whether enough mutants were caught, and there is a reason for each survivor. */
export function isEnough({ trials }: Report, mutants: readonly TestedMutant[]): boolean {
  const reasons = new Map(mutants.map(({ name, survives }) => [name, survives]));
  const others = trials.filter((trial) => !isCaught(trial));
  return (
    others.every(({ name, outcome }) => outcome === "survived" && reasons.get(name)) &&
    trials.filter(isCaught).length >= LEAST * trials.length
  );
}

export function isCaught({ outcome }: Trial): boolean {
  return outcome === "caught" || outcome === "timed out";
}

/** Writes the page of the results. */
export function mutantsPage(
  { date, node, trials }: Report,
  mutants: readonly TestedMutant[],
): string {
  const byName = new Map(mutants.map((mutant) => [mutant.name, mutant]));
  const survivors = trials.filter((trial) => !isCaught(trial));
  const late = trials.filter(({ outcome }) => outcome === "timed out").length;
  const rooms = [...Map.groupBy(trials, ({ room }) => room)];
  return `# Mutants

\`npm run mutants -- --write\` makes this page from its results, which \`docs/mutants.json\` has in full. The last trial was on ${date}, on Node ${node}.

A mutant is a copy of Lockstep with one defect: one text of a source file is replaced, so that the code breaks a promise. \`test/mutants/catalogue\` names
each one, and the tests that should notice: unit tests, or tests on real servers. **${caughtOf(trials)} mutants were caught, ${percent(trials)}.**
A mutant whose tests do not end in time counts as caught: ${late} of them.

${table(
  ["what the mutants break", "caught", "share"],
  rooms.map(([room, some]) => [room, caughtOf(some), percent(some)]),
)}

## Survivors

${
  survivors.length === 0
    ? "None."
    : table(
        ["mutant", "file", "why no test notices"],
        survivors.map(({ name }) => {
          const { file = "", survives = "**not explained**" } = byName.get(name) ?? {};
          return [name, `\`${file}\``, survives];
        }),
      )
}

These mutants stand beside those of the [simulation](proof.md#mutants-of-the-code), which its own checks catch.
`;
}

function caughtOf(trials: readonly Trial[]): string {
  return `${trials.filter(isCaught).length} of ${trials.length}`;
}

function percent(trials: readonly Trial[]): string {
  return `${((100 * trials.filter(isCaught).length) / trials.length).toFixed(1)} %`;
}
