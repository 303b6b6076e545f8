import { table } from "../support/markdown.ts";
import { FAULTS } from "./faults.ts";
import type { Outcome, Trial } from "./try-lock.ts";

/** The results of `npm run peers`, as docs/peers.json has them. */
export interface Trials {
  readonly date: string;

  /** The ttl of the locks, in milliseconds. */
  readonly ttl: number;
  readonly trials: readonly Trial[];
}

/** Lost updates of each lock under each fault. */
export function trialTable(trials: readonly Trial[]): string {
  return faultTable(trials, ({ lost, stuck, crashed }) =>
    [
      lost > 0 ? `**${lost} lost**` : "0",
      ...(stuck > 0 ? [`${stuck} stuck`] : []),
      ...(crashed > 0 ? [`${crashed} crashed`] : []),
    ].join(", "),
  );
}

/** The part of the page of the proof that compares locks. */
export function trialSection({ date, ttl, trials }: Trials): string {
  const rounds = Math.max(...trials.flatMap(({ outcomes }) => outcomes.map((one) => one.rounds)));
  return `## The same faults on other locks

\`npm run peers -- --write\` tries each lock as its documentation says it is used (run on ${date}). Four processes take one lock, read a number, work, ask
their lock whether they still hold it, and write the number plus one. The ttl is ${ttl / 1_000} s. Each fault meets a holder ${rounds} times. The table has the updates that
were lost: another process had written between a holder's read and its write. "Stuck": within 30 s nobody got the lock. "Crashed":
processes that ended by an error of the package. The counts differ from run to run.

${trialTable(trials)}

Lockstep alone hands on a token that the resource compares, and so refuses what no check before the write can: a holder that stops after it has
asked. Without the token it loses that update as well. The locks of database sessions lose nothing here, since the client notices the end
of its session, and nobody gets the lock from a frozen holder: all others wait until it goes on, or its connection ends (see the pauses below).

${Object.entries(FAULTS)
  .map(([name, { story }]) => `- *${name}*: ${story}.`)
  .join("\n")}

| lock | package | server | usage |
| --- | --- | --- | --- |
${trials.map(({ lock, package: from, server, usage }) => `| ${lock} | ${from} | ${server} | ${usage} |`).join("\n")}

The longest time in which nobody got the lock, in seconds:

${faultTable(trials, ({ longestPause }) => (longestPause / 1_000).toFixed(1))}
`;
}

function faultTable(trials: readonly Trial[], cell: (outcome: Outcome) => string): string {
  const faults = trials[0]?.outcomes.map(({ fault }) => fault) ?? [];
  return table(
    ["lock", ...faults],
    trials.map(({ lock, outcomes }) => [lock, ...outcomes.map(cell)]),
  );
}
