import { countOf, faultMatrix } from "../campaign/fault-matrix.ts";
import type { CampaignCheck } from "../campaign/judge.ts";
import { FAULTS } from "../campaign/nemesis.ts";
import { STORES } from "../campaign/stores.ts";
import { MOST_EVENTS, MOST_UNKNOWN, type Replay } from "../models/replay.ts";
import { type PeersRuns, peersSection } from "../peers/page.ts";
import type { Check } from "../simulation/history.ts";
import { type Soak, soakTable, tolerances } from "../soak/growth.ts";
import { nameCode } from "../support/commit.ts";
import { table } from "../support/markdown.ts";
import type { Proof } from "./prove.ts";

/** Whether nothing was violated, every mutant was caught, and the faults did their work, also in the campaigns. */
export function isProven({ models, simulation, replay, mutants, campaigns }: Proof): boolean {
  return (
    models.every(
      (model) => !model.violation && model.mutants.every(({ violation }) => violation),
    ) &&
    simulation.failure === undefined &&
    simulation.overlaps > 0 &&
    simulation.lateRefused > 0 &&
    replay !== undefined &&
    replay.refusal === undefined &&
    mutants.every(({ caughtBy }) => caughtBy) &&
    campaigns.every(({ verdict }) => verdict === "passed")
  );
}

/** Writes the page of a proof, and of the comparison with other locks. */
export function proofPage(proof: Proof, peers: PeersRuns, soak: Soak): string {
  const { date, command, node, processors, models, simulation, mutants, campaigns } = proof;
  const caught = mutants.filter(({ caughtBy }) => caughtBy);
  const modelMutants = models.flatMap((model) => model.mutants);
  const violated = modelMutants.filter(({ violation }) => violation);
  return `# Proof

\`${command}\` repeats this run, and makes this page from its results, which \`docs/proof.json\` has in full. It ran on ${date}
on the code of ${nameCode(proof)} (campaigns: see their table), on Node ${node} and ${processors} processors. **${isProven(proof) ? `No run in these tables broke a guarantee, and each of the ${modelMutants.length + mutants.length} mutants was caught.` : "A guarantee was broken, a mutant was not caught, or a campaign has tried too little."}**

## Not tested

${notTested(proof)}

## Guarantees and their checks

Three kinds of checks, of which none is a proof of the code on all stores: models prove the rules, the simulation runs the code on a virtual clock, and campaigns
run it on real servers.

${table(
  ["guarantee", "model", "checks of the simulation", "checks of campaigns"],
  GUARANTEES.map(({ guarantee, models: rules, checks, campaignChecks }) => [
    guarantee,
    listed(rules),
    listed(checks),
    listed(campaignChecks),
  ]),
)}

## Models

\`test/models\` has the rules as models in Promela. spin searches all their states. A mutant breaks one rule, and has to violate the model:
${violated.length} of ${modelMutants.length} did.

${table(
  ["model", "states", "depth", "violation", "mutants: states until the violation"],
  models.map((model) => [
    model.name,
    count(model.states),
    count(model.depth),
    model.violation ?? "none",
    model.mutants.map(({ name, states }) => `${name} ${count(states)}`).join(", "),
  ]),
)}

## Simulation

\`test/simulation\` runs the real locks, stock, journal and steps on a virtual clock. The SQL of the store is executed by a real SQLite in
memory, behind a network that loses, delays and repeats messages, while clients crash, freeze and read wrong clocks. A seed determines
the whole schedule. Without \`--seconds\`, the simulation lasts three minutes.

${table(
  ["", ""],
  [
    ["schedules", count(simulation.schedules)],
    ["seeds", `${simulation.firstSeed} to ${simulation.firstSeed + simulation.schedules - 1}`],
    ["time", `${simulation.seconds} s`],
    ["schedules per minute", count(Math.round((60 * simulation.schedules) / simulation.seconds))],
    ["faults", count(sumOf(simulation.faults))],
    ...Object.entries(simulation.faults)
      .sort()
      .map(([fault, times]) => [fault, count(times)]),
    ["locks acquired", count(simulation.acquisitions)],
    ["changes of stock", count(simulation.operations)],
    ["of them with an unknown or no answer", count(simulation.unknown)],
    [
      "acquired while another client still believed that it held the lock",
      count(simulation.overlaps),
    ],
    ["claims and writes of late holders, refused", count(simulation.lateRefused)],
    ["late writes accepted", String(lateWritesOf(simulation))],
    ["violations", String(simulation.failure?.violations.length ?? 0)],
  ],
)}
${simulation.failure ? `\nSeed ${simulation.failure.seed} fails: \`npm run prove -- --seed ${simulation.failure.seed}\`.\n` : ""}
\`npm run prove -- --seed N\` replays a schedule. A failing one is shrunk to the fewest clients, operations and faults that fail in the same check.

${replaySection(proof)}## Mutants of the code

Each mutant replaces one text of a source file (\`test/simulation/mutants.ts\`), and is simulated until a check fails: ${caught.length} of ${mutants.length}
were caught.

${table(
  ["mutant", "caught by", "schedules"],
  mutants.map(({ mutant, caughtBy, schedules }) => [
    mutant,
    caughtBy ?? "**not caught**",
    count(schedules),
  ]),
)}

Another trial plants [mutants](mutants.md) in all stores and handlers, and runs the tests: not all of those are caught.

## Campaigns on real servers

\`npm run campaign -- --store NAME --seconds N --seed S\` runs one, for longer or on another store; \`--history FILE\` keeps the events of all calls. Processes
contend for locks and sell stock while they, their clocks, their servers and the wires between them meet faults. A campaign has passed when nothing was
violated, each of the store's faults has met something, and a holder was late: without these, its verdict is "unknown". A holder is late when it uses a
resource after another client has acquired its lock. A use is refused for its fence: that of a late holder, and on etcd also that of a lock which has ended without a
later holder. A fault has met something when its effect was read: the kernel tells that a frozen process is stopped, the process whose clock was stepped tells another time,
the wire has dropped data. An observer writes into the history who has a lock by the store's account, and the time there. Each unit of a sale is an operation,
whether it succeeds or not. A campaign that fails prints the events that broke the guarantee, and writes its history as a trace for Perfetto. The \`--seconds\` of \`npm run prove\` are those of the simulation; with
\`--operations\`, each campaign goes on until it has had so many, for \`--most-seconds\` at the most. As root, the files of SQL databases and of ZooKeeper are
in a file system of their own in memory, so that it can be full. \`npm run prove -- --campaigns --write\` runs campaigns alone, and puts them into these results;
with \`--no-campaigns\` it runs all the rest, and keeps them.

${table(
  [
    ...["store", "on", "code", "seconds", "seed", "verdict", "operations", "of them unknown"],
    ...["locks acquired", "units sold"],
    ...["late holders", "uses refused", "late writes accepted", "violations"],
  ],
  campaigns.map((report) => [
    `${report.store} (${report.version})`,
    report.date ?? date,
    nameCode(report),
    String(report.seconds),
    String(report.seed),
    [report.verdict, ...report.gaps].join(": "),
    count(report.operations),
    count(report.unknown),
    count(report.succeeded.acquire ?? 0),
    report.succeeded.sale === undefined ? "no stock" : count(report.succeeded.sale),
    count(report.overlaps),
    count(report.lateRefused),
    count(report.lateAccepted),
    String(report.violations.length),
  ]),
)}

${endedServers(campaigns)}How often each fault has met something:

${faultMatrix(campaigns, Object.keys(STORES))}

## Soak

\`npm run soak -- --growth --seconds ${soak.seconds} --write\` has watched a process for each store for ${soak.seconds} s, on ${soak.date}, on the code of ${nameCode(soak)}: each turn takes a lock, renews it,
aborts a waiter and, where there is a journal, executes a run that is purged soon. Two numbers of a cell are those after a fifth of the time and at its end; they swing in between. A row has grown when the median of the last third of the time is
above that of the first third by more than ${tolerances()}.
Records are the rows of a SQL database, the keys of etcd and Redis, the items of DynamoDB, and all nodes of ZooKeeper, with the few that a new server has. For a Redis Cluster and Redlock,
they are the sum over the masters.

${soakTable(soak)}

## Hostile input

Malformed, wrong and oversized input gets an error that names it, and secrets stay out of every output:

${table(
  ["input", "tests"],
  Object.entries(HOSTILE).map(([input, tests]) => [
    input,
    tests.map((test) => `[${test}](../test/${test}.test.ts)`).join(", "),
  ]),
)}

TLS with a generated certificate authority was not tried on DynamoDB and on PgBouncer.

${peersSection(peers)}`;
}

/** Says which servers have ended by themselves. */
function endedServers(campaigns: Proof["campaigns"]): string {
  const ended = campaigns.filter(({ serversEnded = 0 }) => serversEnded > 0);
  if (ended.length === 0) return "";
  const counts = ended.map(({ store, serversEnded = 0 }) => `${store} ${serversEnded}`);
  return `Servers that have ended by themselves, and were started again: ${counts.join(", ")}.\n\n`;
}

/** Tells what the proof says nothing about, by store. */
function notTested({ campaigns, failedCampaigns }: Proof): string {
  const untried = FAULTS.filter((fault) =>
    campaigns.every(({ faults }) => "not" in countOf(faults, fault)),
  );
  const rows = campaigns.map(({ store, seconds, overlaps, faults }) => {
    const missing = FAULTS.filter((fault) => !untried.includes(fault)).flatMap((fault) => {
      const found = countOf(faults, fault);
      return "not" in found ? [{ fault, reason: found.not }] : [];
    });
    const reasons = Map.groupBy(missing, ({ reason }) => reason);
    const left = [...reasons].map(
      ([reason, group]) => `${group.map(({ fault }) => fault).join(", ")} (${reason})`,
    );
    return [store, `${seconds} s, ${overlaps} late holders`, left.join("; ") || "none"];
  });
  const tried = campaigns.map(({ store }) => store);
  const others = Object.keys(STORES).filter((store) => !tried.includes(store));
  return `${table(
    ["store", "campaign", "faults that the campaign has not tried"],
    [
      ...rows,
      [
        others.join(", "),
        "none",
        "all: the tests and the conformance suites alone try these stores",
      ],
      ...(untried.length > 0 ? [["every store", "", untried.join(", ")]] : []),
    ].filter(([stores]) => stores !== ""),
  )}

${failedCampaigns
  .map(
    ({ store, version, operations, date: on, account }) =>
      `- **A campaign that failed**: one on ${store} ${version} with ${count(operations)} operations, on ${on}.\n  ${account}\n`,
  )
  .join("")}- **Commits after this run**: the tests alone have tried them, until the next run.
- **Campaigns** take locks, sell stock and execute \`step.tx\`. Plain steps, undo, cancellation, signals, children, schedules, limits of queues, entities,
  elections and reservations meet no fault there. The simulation has plain steps, undo, cancellation and reservations of this list; for the rest there are tests.
- **The simulation** has SQLite in memory: no connection pool, no protocol of a server, no other store. **Models** have three clients at most, and are not the code.
- **Two holders by a clock**: while a server's clock is stepped, campaigns judge the fences alone. The lock then has two holders on MySQL, MariaDB, PostgreSQL and all kinds of Redis
  ([the stores, compared](incident.md#the-stores-compared)).
- **One machine**: all processes and servers shared it, over loopback. One version of each store, which the tables name. No second machine, no real network, no managed service (RDS, ElastiCache, DynamoDB
  itself), and no deployment to AWS.
- **A failover to a standby**: that of PostgreSQL is in a test (\`test/faults/postgres-failover.all.server.test.ts\`) and in no campaign, that of MySQL and MariaDB
  in neither.`;
}

function listed(names: readonly string[]): string {
  return names.join(", ") || "none";
}

/** Names the models of a replay, and how much of its events the bounds have left of a model's. */
function modelsOf({ models }: Pick<Replay, "models">): string {
  if (!models) return "not recorded";
  const names = Object.entries(models).map(([name, { replayed, recorded }]) =>
    replayed === recorded ? name : `${name} (${count(replayed)} of ${count(recorded)} events)`,
  );
  return listed(names);
}

/** Counts what was replayed as paths of the models. Empty for a proof of an earlier version. */
function replaySection({ replay, campaigns }: Proof): string {
  if (!replay) return "";
  const simulated = [
    `simulation, ${count(replay.schedules)} schedules`,
    ...[modelsOf(replay), count(replay.histories), count(replay.events), replay.refusal ?? "none"],
  ];
  const ofCampaigns = campaigns.map(({ store, replay: replayed, violations }) => {
    const refusal = violations.find((violation) => violation.startsWith("model path"));
    const counts =
      replayed && "histories" in replayed
        ? [modelsOf(replayed), count(replayed.histories), count(replayed.events)]
        : ["none", "0", "0"];
    return [`campaign on ${store}`, ...counts, refusal ?? "none"];
  });
  return `## Histories as paths of the models

The calls for locks, resources, stock and runs are replayed: spin searches each of these models for a path that has all events, and
reports the first event without one. Each lock, stock or run has a history of its own. The models \`redlock\` and \`session-queue\` have no replay: what
happens inside the masters and in the queue is not recorded. The simulation alone records the owner that the store has, without which \`withdrawal\`
is not replayed. A search is bounded: it has the first ${count(MOST_EVENTS)} events of a history at the most, and ends where more than ${MOST_UNKNOWN} calls are open that never had an
answer. Where a model had fewer events for that, the table tells how many.

${table(["histories of", "models", "histories", "events", "event without a path"], [simulated, ...ofCampaigns])}

`;
}

/** The tests of input that is wrong on purpose. */
const HOSTILE: Readonly<Record<string, readonly string[]>> = {
  "arguments of the library": ["wrong-arguments", "options", "lock/duration", "lock/fence"],
  "the command line": [
    "functions/cli.server",
    "functions/runs.process",
    "functions/operations.process",
  ],
  HTTP: ["functions/http.server", "functions/http-handler", "functions/http-runs.server"],
  "the console": ["console/api.server", "console/views.all.server"],
  "messages of queues": ["functions/batch.server", "functions/queue", "functions/stock-queue"],
  "planted secrets": ["functions/secrets.all.server", "infra/redact.server"],
  "certificates and passwords, with a generated authority": [
    ...["etcd/tls.server", "redis/tls.server", "stores/redis/tls-groups.all.server"],
    ...["zookeeper/tls.all.server", "faults/mysql.all.server", "faults/postgres.all.server"],
  ],
};

/** What checks each guarantee. */
const GUARANTEES: readonly {
  readonly guarantee: string;
  readonly models: readonly string[];
  readonly checks: readonly Check[];
  readonly campaignChecks: readonly CampaignCheck[];
}[] = [
  {
    guarantee: "one holder at a time, as far as the holder can know",
    models: ["validity", "session-queue"],
    checks: ["validity", "release by the owner"],
    campaignChecks: ["validity", "validity at the store", "release by the owner"],
  },
  {
    guarantee: "nothing is held after a rejection",
    models: ["withdrawal"],
    checks: ["nothing held after a failed acquire"],
    campaignChecks: ["free at the end"],
  },
  {
    guarantee: "fences rise",
    models: ["redlock"],
    checks: ["token order"],
    campaignChecks: ["token order"],
  },
  {
    guarantee: "a late holder is refused",
    models: ["fence"],
    checks: ["late write", "late holder", "lost update"],
    campaignChecks: ["late write", "lost update"],
  },
  {
    guarantee: "stock is conserved, and each operation id applied once",
    models: ["stock"],
    checks: ["stock", "once per operation id"],
    campaignChecks: ["stock", "once per operation id"],
  },
  {
    guarantee: "steps",
    models: ["journal"],
    checks: ["one history of a run", "once per transaction", "at most once"],
    campaignChecks: ["once per transaction"],
  },
  {
    guarantee: "undo and cancellation",
    models: ["journal"],
    checks: ["undone", "cancelled", "no work after the end"],
    campaignChecks: [],
  },
  {
    guarantee: "errors say what has happened",
    models: [],
    checks: ["known errors"],
    campaignChecks: ["known errors", "expected ends"],
  },
];

function lateWritesOf({ failure }: Proof["simulation"]): number {
  return failure?.violations.filter(({ check }) => check === "late write").length ?? 0;
}

function sumOf(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, times) => sum + times, 0);
}

function count(number: number): string {
  return number.toLocaleString("en");
}
