import { access, constants, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { SingleBar } from "cli-progress";
import type { CommandModule } from "yargs";
import { checkWhole } from "../../../core/lock/checks.ts";
import { open } from "../../../infra/open.ts";
import { redact } from "../../../infra/redact.ts";
import { versionOf } from "../../doctor/doctor.ts";
import { renderTrace } from "../../oversell/chrome-trace.ts";
import type { ComparedStore } from "../../oversell/compare/compare.ts";
import type { Observations } from "../../oversell/observations.ts";
import { type OversellOptions, oversell } from "../../oversell/oversell.ts";
import { isBroken, verdict } from "../../oversell/report.ts";
import { MAX_REPORT_ORDERS, renderPicture, renderReport } from "../../oversell/report-page.ts";
import { SCENARIOS, type ScenarioName } from "../../oversell/scenarios/index.ts";
import { isUnsafe, type ScenarioReport } from "../../oversell/scenarios/report.ts";
import { FIRST_PART, STORY_PARTS, story } from "../../oversell/story.ts";
import { existsOn, STRATEGIES, type Strategy } from "../../oversell/strategy.ts";
import { EXIT, exitStatusOfSignal } from "../exit-status.ts";
import { locksOption, parseDuration, type StoreArgs, storeOption } from "../options.ts";
import { onSignal } from "../process/signals.ts";
import { COMPARISON_HEAD, COMPARISON_LEGEND, drawCompared } from "../terminal/draw-comparison.ts";
import { drawFigures, drawReplay, drawStory } from "../terminal/draw-replay.ts";
import { note, print, warn } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";

interface OversellArgs extends StoreArgs {
  readonly locks: string | undefined;
  readonly scenario: ScenarioName | undefined;
  readonly compare: readonly string[] | undefined;
  readonly story: boolean | undefined;
  readonly strategy: readonly string[] | undefined;
  readonly stock: number;
  readonly buyers: number;
  readonly workers: number;
  readonly seed: number;
  readonly ttl: string | undefined;
  readonly pause: string | undefined;
  readonly slow: number;
  readonly freezes: number;
  readonly kills: number;
  readonly duplicates: number;
  readonly json: boolean;
  readonly wide: boolean;
  readonly picture: string | undefined;
  readonly report: string | undefined;
  readonly trace: string | undefined;
  readonly lock: Strategy["lock"] | undefined;
  readonly release: Strategy["release"] | undefined;
  readonly renewal: boolean | undefined;
  readonly fence: Strategy["fence"] | undefined;
  readonly decide: Strategy["stock"] | undefined;
  readonly "operation-ids": boolean | undefined;
}

/** The options without a default that apply to the incident alone. */
const NOT_IN_SCENARIOS = [
  "story",
  "strategy",
  "ttl",
  "pause",
  "picture",
  "report",
  "trace",
  "lock",
  "release",
  "renewal",
  "fence",
  "decide",
  "operation-ids",
];

const SWITCHES = "Switches (each of them customises the strategy):";

export const oversellCommand = (version: string): CommandModule<unknown, OversellArgs> => ({
  command: "oversell",
  describe: "Replay an oversell incident on your store, repair by repair",
  builder: (yargs) =>
    locksOption(storeOption(yargs), "the store of the locks")
      .option("strategy", {
        type: "string",
        requiresArg: true,
        array: true,
        choices: STRATEGIES.map(({ name }) => name),
        describe: "only these strategies; default: all that the store has",
      })
      .option("scenario", {
        choices: Object.keys(SCENARIOS) as ScenarioName[],
        requiresArg: true,
        describe: "instead of the incident, break a Redis lock on servers of its own",
        conflicts: NOT_IN_SCENARIOS,
      })
      .option("compare", {
        type: "string",
        array: true,
        requiresArg: true,
        describe:
          "instead of the incident, compare how stores hand a lock over and what breaks it: names of `servers`, which it starts, sqlite, or URLs, which it does not break",
        conflicts: [...NOT_IN_SCENARIOS, "scenario"],
      })
      .option("story", {
        type: "boolean",
        describe: "an overloaded service alone, then freezes, kills and repeats one by one",
      })
      .option("stock", {
        type: "number",
        requiresArg: true,
        default: 30,
        describe: "units in stock",
      })
      .option("buyers", {
        type: "number",
        requiresArg: true,
        default: 80,
        describe: "buyers, each of one unit",
      })
      .option("workers", {
        type: "number",
        requiresArg: true,
        default: 6,
        describe: "worker processes",
      })
      .option("seed", {
        type: "number",
        requiresArg: true,
        default: 1,
        describe: "seed of the faults",
      })
      .option("ttl", {
        type: "string",
        requiresArg: true,
        describe: "the lock's ttl; default: 150ms, or the minimum of the store",
      })
      .option("pause", {
        type: "string",
        requiresArg: true,
        describe: "how long a slow call takes and a frozen process stays frozen; default: 3 ttls",
      })
      .option("slow", {
        type: "number",
        requiresArg: true,
        default: 3,
        describe: "slow calls of a service",
      })
      .option("freezes", {
        type: "number",
        requiresArg: true,
        default: 2,
        describe: "processes frozen (SIGSTOP)",
      })
      .option("kills", {
        type: "number",
        requiresArg: true,
        default: 2,
        describe: "processes killed (SIGKILL)",
      })
      .option("duplicates", {
        type: "number",
        requiresArg: true,
        default: 8,
        describe: "orders delivered twice",
      })
      .option("json", { type: "boolean", default: false, describe: "print one JSON document" })
      .option("wide", {
        type: "boolean",
        default: false,
        describe: "print all figures, in a table of 142 columns",
      })
      .option("picture", {
        type: "string",
        requiresArg: true,
        describe: "write an SVG file: the first moments with two holders",
      })
      .option("report", {
        type: "string",
        requiresArg: true,
        describe: "write an HTML file that replays the sale, moment by moment",
      })
      .option("trace", {
        type: "string",
        requiresArg: true,
        describe: "write a JSON file for ui.perfetto.dev: holders, requests and stock over time",
      })
      .option("lock", {
        requiresArg: true,
        choices: ["none", "set-if-absent", "setnx-then-expire", "in-process", "lockstep"] as const,
      })
      .option("release", {
        requiresArg: true,
        choices: ["unconditional", "owner-checked"] as const,
      })
      .option("renewal", { type: "boolean" })
      .option("fence", { requiresArg: true, choices: ["none", "on-write", "claimed"] as const })
      .option("decide", {
        requiresArg: true,
        choices: [
          "get-and-compare",
          "compare-then-decrement",
          "conditional-decrement",
          "decr-and-test",
          "version-column",
          "select-for-update",
        ] as const,
      })
      .option("operation-ids", { type: "boolean" })
      .group(["lock", "release", "renewal", "fence", "decide", "operation-ids"], SWITCHES)
      .example("$0 oversell", "replay the incident and each repair")
      .example("$0 oversell --store mysql://root@127.0.0.1/shop", "use your own store")
      .example("$0 oversell --store mysql://… --locks redis://…", "locks in a store of their own")
      .example(
        "$0 oversell --strategy renewed --strategy fence-claimed",
        "show that a lock alone is not enough",
      )
      .example("$0 oversell --story", "the story's own cause, then one fault after another")
      .example("$0 oversell --report incident.html", "a page that replays the sale")
      .example("$0 oversell --trace incident.trace.json", "look at it in Perfetto")
      .example("$0 oversell --scenario failover", "two holders after the promotion of a replica")
      .example("$0 oversell --scenario split-brain", "two masters at once, each with a holder")
      .example("$0 oversell --scenario clock-jump", "two holders of a Redlock after a clock jump")
      .example("$0 oversell --compare sqlite redis etcd", "hand-overs, fairness, what breaks each")
      .epilog(
        `Exit status: 1 if a strategy or variant that claims to be safe oversold, lost or
duplicated a unit, or left buyers waiting for ever; 69 if a compared store failed;
73 if a file could not be written.`,
      ),
  async handler(args) {
    if (args.scenario) return playScenario(args.scenario, args);
    if (args.compare) return compareStores(args.compare, args.json, version);
    checkReport(args);
    for (const option of ["picture", "report", "trace"] as const)
      await checkFolder(option, args[option]);
    const observations: Observations[] = [];
    const options = optionsOf(args, (one) => observations.push(one));
    const width = terminalWidth();
    if (args.story) {
      const told = await withProgress(options, STORY_PARTS, (onProgress, onPart) =>
        story({ ...options, onProgress, onPart }),
      );
      print(args.json ? JSON.stringify(told) : drawStory(told, width));
      if (told.parts.some((part) => part.strategies.some(isBroken))) process.exitCode = EXIT.no;
    } else {
      const report = await withProgress(options, 1, (onProgress) =>
        oversell({ ...options, onProgress }),
      );
      if (args.json) print(JSON.stringify(report));
      else print(args.wide ? drawFigures(report) : drawReplay(report, width));
      if (report.strategies.some(isBroken)) process.exitCode = EXIT.no;
    }
    await write("picture", args.picture, () => renderPicture(observations));
    await write("report", args.report, async () =>
      renderReport(observations, await settingOf(args, version)),
    );
    await write("trace", args.trace, () => renderTrace(observations));
  },
});

/** Throws a RangeError if the report would become larger than 1 MB. */
function checkReport(args: OversellArgs): void {
  if (args.report === undefined) return;
  const strategies = strategiesOf(args).length;
  const orders = args.buyers * strategies;
  if (orders > MAX_REPORT_ORDERS) {
    throw new RangeError(
      `--report shows at most ${MAX_REPORT_ORDERS} orders, not ${orders} (${args.buyers} buyers, ${strategies} strategies): name fewer strategies, or lower --buyers`,
    );
  }
}

/** Returns what the report says about its making. */
async function settingOf({ store, locks, seed, story }: OversellArgs, version: string) {
  const { command, ...origin } = originOf(version);
  const servers = {
    server: await serverOf(store),
    ...(locks && { "lock server": await serverOf(locks) }),
  };
  const stores = { store: redact(store), ...(locks !== undefined && { locks: redact(locks) }) };
  return {
    command,
    ...(story && { part: `the first part of the story, a ${FIRST_PART} alone` }),
    facts: { ...stores, ...servers, seed, ...origin },
  };
}

/** Resolves to the version of a store. A sale that is over is reported without it, if the store does not answer any more. */
async function serverOf(url: string): Promise<string> {
  await using opened = await open(url);
  return (await versionOf(opened, url).catch(() => undefined)) ?? "of an unknown version";
}

/** Returns what has made a result. */
function originOf(version: string) {
  const words = process.argv
    .slice(2)
    .map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word}'`));
  return {
    command: redact(["lockstep", ...words].join(" ")),
    Lockstep: version,
    "Node.js": process.versions.node,
    system: `${process.platform} ${process.arch}`,
  };
}

async function playScenario(
  name: ScenarioName,
  { stock, json }: Pick<OversellArgs, "stock" | "json">,
): Promise<void> {
  checkWhole("stock", stock, 1, 1_000);
  const report = await SCENARIOS[name]({ stock, onProgress: note });
  if (json) print(JSON.stringify(report));
  else showScenario(report);
  if (report.variants.some(isUnsafe)) process.exitCode = EXIT.no;
}

/** Prints each store when it is done; as JSON, all of them at the end. */
async function compareStores(
  stores: readonly string[],
  json: boolean,
  version: string,
): Promise<void> {
  const { compare } = await import("../../oversell/compare/compare.ts");
  const compared: ComparedStore[] = [];
  for await (const store of compare({ stores, onProgress: note })) {
    if (!json && compared.length === 0) print(COMPARISON_HEAD);
    if (!json) print(drawCompared(store));
    compared.push(store);
  }
  print(
    json ? JSON.stringify({ ...originOf(version), stores: compared }) : `\n${COMPARISON_LEGEND}`,
  );
  if (compared.some(({ failed }) => failed !== undefined)) process.exitCode = EXIT.unavailable;
}

function showScenario({ story, resource, stock, variants }: ScenarioReport): void {
  print(`${story}\n\n${stock} units, in ${resource}\n`);
  const head = ["variant", "holders at once", "sold", "oversold", "refused", "safe?"];
  const rows = variants.map((variant) => [
    variant.name,
    variant.holders,
    variant.sold,
    variant.oversold,
    variant.refused,
    verdict(variant, isUnsafe(variant)),
  ]);
  print(table(head, rows));
  print(["", ...variants.map(({ name, why }) => `${name}: ${why}`)].join("\n"));
}

/** The width of the terminal, at most 100 columns; 80 in a pipe. */
function terminalWidth(): number {
  return Math.min(process.stdout.columns ?? 80, 100);
}

async function checkFolder(option: string, file: string | undefined): Promise<void> {
  if (file === undefined) return;
  try {
    await access(dirname(file), constants.W_OK);
  } catch (error) {
    const { message, code, path } = error as NodeJS.ErrnoException;
    const problem = `--${option} cannot be written: ${message}`;
    throw Object.assign(new Error(problem), { code, path });
  }
}

/** Writes a file, after the report has been printed. */
async function write(
  option: string,
  file: string | undefined,
  render: () => string | Promise<string>,
): Promise<void> {
  if (file === undefined) return;
  try {
    await writeFile(file, await render());
  } catch (error) {
    warn(`the ${option} was not written: ${(error as Error).message}`);
    process.exitCode = EXIT.cannotCreate;
  }
}

function optionsOf(
  args: OversellArgs,
  onObservations: (observations: Observations) => void,
): OversellOptions {
  const { store, locks, stock, buyers, workers, seed, duplicates } = args;
  return {
    ...{ store, locks, stock, buyers, workers, seed, duplicates, onObservations },
    strategies: strategiesOf(args),
    ttlMillis: args.ttl === undefined ? undefined : parseDuration("ttl", args.ttl),
    pauseMillis: args.pause === undefined ? undefined : parseDuration("pause", args.pause),
    faults: {
      slow: args.slow,
      freeze: args.freezes,
      "kill-before": Math.ceil(args.kills / 2),
      "kill-after": Math.floor(args.kills / 2),
    },
  };
}

/** Shows on a terminal what happens while `work` replays the incident, in one part or several. */
async function withProgress<T>(
  { store, buyers, strategies }: OversellOptions,
  parts: number,
  work: (
    onProgress: NonNullable<OversellOptions["onProgress"]>,
    onPart: (adds: string, index: number) => void,
  ) => Promise<T>,
): Promise<T> {
  const bar = new SingleBar({
    format: "{bar} {percentage}% {part}{strategy}: {now}",
    barsize: 15,
    linewrap: false,
    noTTYOutput: false,
    clearOnComplete: true,
    hideCursor: true,
  });
  const whole = buyers * strategies.length;
  let done = 0;
  let part = "";
  // The workers end with this process. By its default action, a signal would leave the terminal without a cursor.
  using _interrupted = onSignal((signal) => {
    bar.stop();
    process.exit(exitStatusOfSignal(signal));
  });
  bar.start(parts * whole, 0, { part, strategy: redact(store), now: "opens" });
  try {
    return await work(
      ({ name }, { answered, now }) => {
        const before = strategies.findIndex((one) => one.name === name) * buyers;
        bar.update(done + before + answered, { part, strategy: name, now: now || "sells" });
      },
      (adds, index) => {
        done = index * whole;
        part = `${adds}, `;
      },
    );
  } finally {
    bar.stop();
  }
}

/** Returns the named strategies, all strategies, or a custom one made of switches. */
function strategiesOf(args: OversellArgs): readonly Strategy[] {
  const named = STRATEGIES.filter(({ name }) => args.strategy?.includes(name));
  const switches: Partial<Strategy> = Object.fromEntries(
    Object.entries({
      lock: args.lock,
      release: args.release,
      renewal: args.renewal,
      fence: args.fence,
      stock: args.decide,
      operationIds: args["operation-ids"],
    }).filter(([, value]) => value !== undefined),
  );
  if (Object.keys(switches).length === 0) {
    return named.length > 0 ? named : STRATEGIES.filter((one) => existsOn(one, args));
  }
  const [base = STRATEGIES[0] as Strategy] = named;
  return [{ ...base, ...switches, name: "custom" }];
}
