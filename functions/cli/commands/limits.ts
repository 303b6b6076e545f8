import type { CommandModule } from "yargs";
import type { Journal } from "../../../core/journal/journal.ts";
import type { QueueLimits } from "../../../core/journal/limits.ts";
import { checkText } from "../../../core/lock/checks.ts";
import { formatJson } from "../../display/format-json.ts";
import { parseDuration, parseInteger } from "../options.ts";
import { type CallArgs, callOptions, withCalls } from "../runtime.ts";
import { withStoreToRead } from "../store.ts";
import { print } from "../terminal/output.ts";

interface LimitsArgs extends CallArgs {
  readonly queue: string | undefined;
  readonly concurrency: string | undefined;
  readonly "per-key": string | undefined;
  readonly rate: string | undefined;
  readonly "rate-per-key": string | undefined;
  readonly none: boolean;
}

export const limitsCommand: CommandModule<unknown, LimitsArgs> = {
  command: "limits [queue]",
  describe: "Show the limits of all queues, or replace those of one queue for all workers",
  builder: (yargs) =>
    callOptions(yargs)
      .positional("queue", { type: "string", describe: "the queue whose limits are replaced" })
      .option("concurrency", {
        type: "string",
        requiresArg: true,
        describe: "the most runs that are executed at a time",
      })
      .option("per-key", {
        type: "string",
        requiresArg: true,
        describe: "the most runs with the same key that are executed at a time",
      })
      .option("rate", {
        type: "string",
        requiresArg: true,
        describe: "the most claims per span, such as 100/1m",
      })
      .option("rate-per-key", {
        type: "string",
        requiresArg: true,
        describe: "the most claims per span of runs with the same key, such as 5/1s",
      })
      .option("none", { type: "boolean", default: false, describe: "remove the queue's limits" })
      .example("$0 runs limits mail --concurrency 20 --rate 100/1m", "from the next claim on"),
  async handler(args) {
    const change = toChange(args);
    const show = async ({ journal }: { readonly journal: Journal }) =>
      print(formatJson(Object.fromEntries(await journal.limits())));
    if (!change) return withStoreToRead(args, show);
    await withCalls(args, async (runtime) => {
      await runtime.journal.setLimits(change.queue, change.limits);
      await show(runtime);
    });
  },
};

function toChange(args: LimitsArgs) {
  const { queue, none, concurrency, "per-key": perKey, rate, "rate-per-key": ratePerKey } = args;
  const limits: QueueLimits = {
    ...(concurrency !== undefined && { concurrency: parseInteger("--concurrency", concurrency) }),
    ...(perKey !== undefined && { perKey: parseInteger("--per-key", perKey) }),
    ...(rate !== undefined && { rate: parseRate("rate", rate) }),
    ...(ratePerKey !== undefined && { ratePerKey: parseRate("rate-per-key", ratePerKey) }),
  };
  const isNone = Object.keys(limits).length === 0;
  if (queue === undefined && isNone && !none) return undefined;
  if (queue === undefined) throw new TypeError("name the queue whose limits are to be replaced");
  checkText("queue", queue, 255);
  if (isNone !== none) {
    throw new TypeError("give new limits for the queue, or --none to remove its limits");
  }
  return { queue, limits };
}

function parseRate(option: string, text: string): QueueLimits["rate"] {
  const [runs = "", per, ...rest] = text.split("/");
  if (per === undefined || rest.length > 0) {
    throw new TypeError(`--${option} must be runs per span, such as 100/1m, not "${text}"`);
  }
  return { runs: parseInteger(`--${option}`, runs), per: parseDuration(option, per) };
}
