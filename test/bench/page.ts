import { sum } from "simple-statistics";
import { nameCode } from "../support/commit.ts";
import { table } from "../support/markdown.ts";
import { besideDbos } from "./beside-dbos.ts";
import { type GrowthReport, HEAD, toRow } from "./growth/growth.ts";
import { isLargerBetter, type Profiled, type Ratio, type Result } from "./measure.ts";
import type { Measurement, SuiteReport } from "./suite.ts";

/** The results of `npm run bench -- --suite all`, as docs/benchmarks.json has them. */
export interface Benchmarks extends Measurement {
  readonly node: string;
  readonly processors: number;

  /** The name of the processors' model. */
  readonly processor: string;
  readonly suites: readonly SuiteReport[];
  readonly growth: GrowthReport;
}

interface Chapter {
  readonly suite: string;
  readonly title: string;
  readonly text: string;

  /** The counts that the page has; all without it. */
  readonly counts?: RegExp;

  /** Why aims are missed. The profiles have the figures. */
  readonly missed?: string;

  /** Another part, before the tables. */
  readonly part?: (report: SuiteReport) => string;
}

const HOT_SKU = `The 16 processes sell one sku at the same time; \`orders fulfil\` is what the command does: it reads the orders from
their table, and answers them in groups of up to 500. Its rate, and that of \`decrementMany\`, is orders per second.`;

const MYSQL_MISSED = `Acquire + release has two requests, as its floor, and most of the difference is the server's: the request that takes the lock is a transaction that also counts
the fence, in a row that outlives the lock.`;

const CHAPTERS: readonly Chapter[] = [
  {
    suite: "postgres",
    title: "PostgreSQL",
    text: `Beside bare statements, advisory locks, DBOS and graphile-worker on the same server. An advisory lock commits nothing, so it is no floor for a lock
that survives its session. A run of one step, which another client starts and a worker takes, has four commits: its start, its claim, the step's record and its end
(\`runtime.run\` starts and claims in one). A job of graphile-worker has fewer, and no history.
${HOT_SKU}`,
    part: besideDbos,
    missed: `Acquire + release has two requests, as its floor. Its server does more: it counts the fence in a row of its own, judges the expiry, and tells waiters of the
release. Its client keeps a deadline, a renewal and the state of the held lock. A step under a lock in PostgreSQL has the two requests and commits of its lock besides its
own two; a transaction of DBOS has no lock. A run sends about seven requests, four of them with a commit, and the server answers within a few hundred microseconds,
so requests decide.`,
  },
  {
    suite: "mariadb",
    title: "MariaDB",
    text: `Beside bare statements and \`GET_LOCK\` on the same server. ${HOT_SKU}`,
    missed: MYSQL_MISSED,
  },
  {
    suite: "mysql",
    title: "MySQL",
    text: "The same on MySQL.",
    missed: MYSQL_MISSED,
  },
  {
    suite: "sqlite",
    title: "SQLite",
    text: `Beside statements of node:sqlite in the same file and process, prepared once, with the same journal (WAL) and \`synchronous = FULL\`. ${HOT_SKU}`,
    missed: `Acquire + release has two commits, as its floor. By the profile most of the difference is in SQLite itself, which counts as native code: the transaction that
takes the lock also counts the fence, in a row that outlives the lock. The rest is our code and Node's: SQLite answers within the caller's process, so nothing hides what Lockstep
does beside its statements. Why the same statements take less native time when they are repeated with the same values is not known yet.`,
  },
  {
    suite: "etcd",
    title: "etcd",
    text: "Beside raw requests, npm etcd3's lock and, where Go is there, etcd's own mutex.",
    missed: `A lock has two requests, as the raw pair. By the profile most of the difference is waiting: the request that takes the lock is a transaction that also reads
the queue. The rest is our code and Node's. Raw requests from Node are about as fast as Go's whole pair, so nothing is left for a lock on top. By the profile of hand-overs,
two waiters keep Node's one thread half busy, and ten mostly wait for etcd.`,
  },
  {
    suite: "redis",
    title: "Redis",
    text: "Beside the bare commands and npm redlock; stock beside a script that counts one number down.",
    missed: `Redis answers in less time than a client needs to ask, so each microsecond of the client counts. A pair is two scripts: the first also counts the fence, and the second wakes
the next waiter; bare SET and redlock do neither, which costs them the turns among several waiters. A fenced decrement checks its fence, looks up its operation id,
and writes units, record and ledger in one script, where the other script counts one number down: with 16 clients the server's one thread is busy with that.`,
  },
  {
    suite: "zookeeper",
    title: "ZooKeeper",
    text: "Beside bare requests.",
    missed: `A waiter that may be next reads the names of all waiters, so 200 of them make each answer larger: the difference is mostly our code, which parses and sorts them.`,
  },
  {
    suite: "dynamodb",
    title: "DynamoDB",
    text: "On DynamoDB Local, beside bare signed requests. The service itself answers over a network, so its ratios are nearer to the number of requests.",
    missed: `A batch writes an item for each operation id, as each order may be repeated alone: 96 orders are a transaction of 98 items. By the profile nearly all of an
order's time is that of the server.`,
  },
  {
    suite: "steps",
    title: "Steps",
    text: `Runs of 20 steps on MariaDB. The rates of DBOS are those on PostgreSQL, **another database with other defaults: no aim and no ratio compares them**. For both on
one server see [beside DBOS](#beside-dbos). A plain step is one statement in one round trip. A transacted step is one transaction in two round trips, besides its own
statements. The 2,000 children have one plain step each, and no locks; workers and server share the processors.`,
    missed: `The replay of 200 results of 1 MB has each of them three times: as the driver's bytes, as text, and as the workflow's value. They are garbage soon, but V8 collects them
only when the heap has grown. Measured by the largest memory of the process, and without a profile.`,
  },
  {
    suite: "functions",
    title: "Functions",
    text: `Functions as they are deployed, bundled and minified, each started in a new process: the time goes from the start of the import to the first answer.`,
    counts: /(?<!compile cache): bytes at import$/,
    missed: `A cold start runs each line once, before V8 has optimized it. By the profile a lock adds 10 ms of our code, and 10 ms of Node, which loads the bundle and, for the
first random id, its Web Crypto. The queue's function takes 40 ms in its own bundle, which has the schema library in it, and 30 ms in Node, which compiles it and opens SQLite.
A lock on DynamoDB adds 9 ms of our code, whose bundle has the stock and the journal of the store in it, 11 ms of Node, which loads that bundle, and a third request, for the generation.`,
  },
];

/** Writes the page of the benchmarks. */
export function benchmarksPage(benchmarks: Benchmarks): string {
  const { date, node, processors, processor, rounds, block, suites, growth } = benchmarks;
  const ratios = suites.flatMap((suite) => suite.ratios);
  const met = ratios.filter((ratio) => ratio.met);
  const chapters = CHAPTERS.flatMap(({ suite, title, text, counts, part, missed }) => {
    const found = suites.find((report) => report.suite === suite);
    if (!found) return [];
    const isMissed = found.ratios.some(({ met }) => !met);
    return [
      [
        `## ${title}`,
        text,
        ...(part ? [part(found)] : []),
        tables(found, counts),
        ...(missed && isMissed ? [`**Why aims are missed.** ${missed}`] : []),
      ].join("\n\n"),
    ];
  });
  return `# Benchmarks

\`npm run bench -- --suite all --write\` makes this page from its results, which \`docs/benchmarks.json\` has in full; \`--suite NAME\` measures one suite, and with \`--write\` puts
it in the place of its last results.
This run was on ${date} on the code of ${nameCode(benchmarks)}, on Node ${node} and ${processors} processors (${processor}), which clients and servers share. All contenders of a suite take turns, ${rounds} rounds
of ${block} ms each, and each ratio is taken within a round, so that other load of the machine meets both sides: the ratio is the median, with its
95 % interval. **${met.length} of ${ratios.length} aims are met.**

![Each ratio over its aim](pictures/ratios.svg)

An aim is a target that this project has set itself: a missed one says nothing of a peer, and a met one does not say "faster". Suites have other
contenders and tables, and are measured one after the other: compare within a suite. *Per second* is the median of the rounds; p50 and p99 are those of one call, which may be a
batch, or a run with its steps.

*Rate*: operations per second of the first over those of the second; more is better. *Time* per operation, *p50* and *added* milliseconds: less is better. *CPU*: the
milliseconds that the process of the benchmark computes per operation; less is better. *Fairness*: Jain's
index over the clients; 1 is even. *Count*: bytes, requests or statements, with their limit.

${chapters.join("\n\n")}

## Growth

\`npm run bench -- --suite growth\` measures the cost of one operation against a size, on one store after the other (\`--stores redis,etcd\` chooses), and
fits an exponent: 0 means that the size does not matter, 1 that the cost grows as the size does. A store ends at the size that takes it past its share of
the time. The last column is the memory of this process for each waiting call, or for each held lock. Only stores with a journal have runs.${growth.measured ? ` The table was ${alone(growth.measured)}.` : ""}

![Cost against size](pictures/growth.svg)

${table(
  HEAD,
  growth.series.map((series) => toRow(series).map(String)),
)}

## Profiles

\`npm run bench -- --suite NAME --profile FOLDER\` runs each contender of this process under V8's profiler in place of the comparison, and writes a
\`.cpuprofile\` for each, which the developer tools of browsers open. It prints the microseconds of an operation by part: our folders (\`core/lock\`,
\`core/stores/redis\`), each package, Node, V8 and native code, garbage collection, and waiting for the server. The samples go by elapsed time: on a
machine with few cores, a write to a socket may hand the core over to the server, whose time then counts as native code. With \`--write\`, the profiles
of a suite's missed aims come into this page.
`;
}

/** The ratios of all suites over their aims, turned so that more is better, and kept within what the chart shows: 0.1 to 10. */
export function barsOf({ suites }: Pick<Benchmarks, "suites">) {
  return suites.flatMap(({ suite, ratios }) =>
    ratios.map(({ name, by, value, low, high, aim, met }) => {
      const share = (measured: number) => {
        const part = Math.max(measured, 0) / aim;
        return Math.min(10, Math.max(0.1, isLargerBetter(by) ? part : 1 / part));
      };
      const ends = [share(low), share(high)];
      const [least, most] = [Math.min(...ends), Math.max(...ends)];
      return { suite, name, value: share(value), low: least, high: most, met };
    }),
  );
}

function tables(report: SuiteReport, shown = /^/): string {
  const { notes, ratios, results, counts: all, profiles = [] } = report;
  const counts = Object.entries(all).filter(([name]) => shown.test(name));
  const parts = [
    ...(report.server === "" ? [] : [serverLine(report)]),
    ...(notes.length > 0 ? [notes.map((note) => `- ${note}`).join("\n")] : []),
    ...(ratios.length > 0
      ? [table(["comparison", "by", "value", "95 % interval", "aim", ""], ratios.map(ratioRow))]
      : []),
    ...(results.length > 0
      ? [table(["", "per second", "p50 ms", "p99 ms", "CPU ms"], results.map(resultRow))]
      : []),
    ...(counts.length > 0
      ? [
          table(
            ["count", ""],
            counts.map(([name, value]) => [name, value.toLocaleString("en")]),
          ),
        ]
      : []),
    ...(profiles.length > 0
      ? [
          `Where the microseconds of one operation go, by profile:`,
          table(PROFILE_HEAD, profiles.map(profileRow)),
        ]
      : []),
  ];
  return parts.join("\n\n");
}

/** Tells when results were measured that are newer than the others. */
function alone(measured: Pick<Measurement, "date" | "commit">): string {
  return `measured alone on ${measured.date}, on the code of ${nameCode(measured)}`;
}

/** Names the server, and when and how a suite was measured that is newer than the others. */
function serverLine({ server, measured }: SuiteReport): string {
  if (!measured) return `Measured on ${server}.`;
  const { rounds, block } = measured;
  return `On ${server}: ${alone(measured)}, in ${rounds} rounds of ${block} ms.`;
}

const PROFILE_HEAD = [
  "",
  "Lockstep",
  "packages",
  "Node",
  "V8 and native code",
  "garbage collection",
  "waiting",
];

function profileRow({ name, parts }: Profiled): string[] {
  const shares = PROFILE_HEAD.slice(1).map((head) => {
    const ofHead = Object.entries(parts).filter(([part]) => headOf(part) === head);
    return sum(ofHead.map(([, micros]) => micros)).toFixed(0);
  });
  return [name, ...shares];
}

/** The column of a part of a profile. */
function headOf(part: string): string {
  if (/^(core|functions|infra)\//.test(part)) return "Lockstep";
  if (part === "node") return "Node";
  return PROFILE_HEAD.includes(part) ? part : "packages";
}

function ratioRow({ name, by, value, low, high, aim, met }: Ratio): string[] {
  const interval = low === high ? "" : `${low} to ${high}`;
  const bound = isLargerBetter(by) ? "at least" : "at most";
  return [name, by, `${value}`, interval, `${bound} ${aim}`, met ? "met" : "**missed**"];
}

function resultRow({ name, perSec, p50Millis, p99Millis, cpuMillis }: Result): string[] {
  return [name, perSec.toLocaleString("en"), `${p50Millis}`, `${p99Millis}`, `${cpuMillis ?? ""}`];
}
