import { subscribe } from "node:diagnostics_channel";
import type { CommandModule } from "yargs";
import { checkSpan, checkWhole } from "../../../core/lock/checks.ts";
import { quote } from "../../../core/lock/errors.ts";
import type { LockEvent } from "../../../core/lock/events.ts";
import type { RunEvent } from "../../../core/steps/events.ts";
import type { RunOutcome } from "../../../core/steps/workflow.ts";
import { readConfig } from "../../../infra/config.ts";
import type { ServerOptions } from "../../http/server.ts";
import type { PrometheusMetrics } from "../../telemetry/prometheus.ts";
import type { WorkerEvent } from "../../worker/options.ts";
import { runWorker } from "../../worker/worker.ts";
import { loadWorkflowModule } from "../../worker/workflow-module.ts";
import { describeError, exitStatusOfSignal } from "../exit-status.ts";
import { parseDuration, parseInteger } from "../options.ts";
import { listenForShutdown } from "../process/signals.ts";
import {
  MODULE_HELP,
  type ModuleRuntime,
  type RuntimeArgs,
  runtimeOptions,
  withRuntime,
} from "../runtime.ts";
import { describeOutcome } from "../terminal/outcome.ts";
import { note, print, warn } from "../terminal/output.ts";

interface WorkerArgs extends RuntimeArgs {
  readonly file: string;
  readonly concurrency: string;
  readonly queue: readonly string[] | undefined;
  readonly drain: string;
  readonly host: string;
  readonly port: string | undefined;
  readonly quiet: boolean;
}

export const workerCommand: CommandModule<unknown, WorkerArgs> = {
  command: "worker <file>",
  describe: "Execute runs of workflows that any process has started",
  builder: (yargs) =>
    runtimeOptions(yargs)
      .positional("file", { type: "string", demandOption: true, describe: "the module" })
      .option("concurrency", {
        type: "string",
        requiresArg: true,
        default: "8",
        describe: "the largest number of concurrent runs; sleeping runs do not count",
      })
      .option("queue", {
        type: "string",
        array: true,
        // One value each: the module may follow.
        nargs: 1,
        requiresArg: true,
        describe: "a queue to serve; may be repeated",
        defaultDescription: 'the queues of the workflows, and "default"',
      })
      .option("drain", {
        type: "string",
        requiresArg: true,
        default: "30s",
        describe: "how long running steps may continue after a signal to end",
      })
      .option("port", {
        type: "string",
        requiresArg: true,
        describe: "the port of /metrics and of the console; 0 picks a free one",
        defaultDescription: "none",
      })
      .option("host", {
        type: "string",
        requiresArg: true,
        default: "127.0.0.1",
        describe: "the address of /metrics and of the console",
      })
      .option("quiet", {
        type: "boolean",
        default: false,
        describe: "log only warnings, and no line when a run starts and ends",
      })
      .example("$0 worker order.ts --store mysql://shop@db/shop", "start any number of workers")
      .example("$0 worker order.ts --locks etcd://127.0.0.1:2379", "keep the steps' locks in etcd")
      .epilog(
        `${MODULE_HELP}

Logs a line on standard error when it takes a run, takes one over from a lost
process, loses a lock, and parks or ends a run.

With --port, prints one line of JSON with the URL of /metrics, which answers
Prometheus without a token: counts, durations, the names of workflows and
queues. If LOCKSTEP_TOKEN is set, the console is at /, and needs the token.

On TERM, INT or HUP, takes no more runs, lets running steps finish, parks each
run before its next step, and ends. A second signal, or the end of --drain,
aborts the steps.

Exit status: 0 if all running steps finished, otherwise 128 plus the signal's
number; 69 store unavailable; 64 usage.`,
      ),
  async handler(args) {
    const [concurrency, drain, lease] = [
      parseInteger("--concurrency", args.concurrency),
      parseDuration("drain", args.drain),
      parseDuration("lease", args.lease),
    ];
    checkWhole("--concurrency", concurrency, 1, 1_000);
    checkSpan("--drain", drain, 0);
    checkSpan("--lease", lease, 100);
    const port = args.port === undefined ? undefined : parseInteger("--port", args.port);
    if (port !== undefined) checkWhole("--port", port, 0, 65_535);
    const metrics = port === undefined ? undefined : await createMetrics();
    const log = args.quiet ? () => {} : logLine;
    const program = await loadWorkflowModule(args.file);
    await withRuntime(
      args,
      {
        ...{ program, lease, onEvent: (event) => reportRun(event, log) },
        observer: metrics?.telemetry,
      },
      async (loaded) => {
        const { runtime, workflows } = loaded;
        using shutdown = listenForShutdown();
        subscribe("lockstep:lock", (event) => reportLoss(event as LockEvent));
        const names = workflows.map(({ name, version }) => `${name} v${version}`).join(", ");
        log(`executing ${names}, ${concurrency} at a time, on ${runtime.journal.address}`);
        if (metrics && port !== undefined) {
          await serve(metrics, loaded, { host: args.host, port });
        }
        const { isClean, ...counts } = await runWorker({
          ...{ runtime, concurrency, drain, onEvent: (event) => reportEvent(event, log) },
          signal: shutdown.requested,
          abort: shutdown.forced,
          ...(args.queue && { queues: args.queue }),
        });
        print(JSON.stringify(counts));
        if (!isClean && shutdown.signal) process.exitCode = exitStatusOfSignal(shutdown.signal);
      },
    );
  },
};

async function createMetrics(): Promise<PrometheusMetrics> {
  const { PrometheusMetrics } = await import("../../telemetry/prometheus.ts");
  return new PrometheusMetrics();
}

/** Serves the metrics, and with LOCKSTEP_TOKEN the console, until the process ends, and prints their URLs. */
async function serve(
  metrics: PrometheusMetrics,
  { runtime, services, addresses }: ModuleRuntime,
  { host, port }: Required<ServerOptions>,
): Promise<void> {
  const { createConsole } = await import("../../console/console.ts");
  const { isLoopback } = await import("../../console/guard.ts");
  const { pageFiles } = await import("../../console/page-files.ts");
  const { serveHttp } = await import("../../http/server.ts");
  const { token } = readConfig();
  const { locks, inventory } = services;
  const nothing = { fetch: () => new Response("not found\n", { status: 404 }) };
  const console =
    token === undefined
      ? undefined
      : createConsole({
          ...{ addresses, locks, inventory, runtime, token, page: await pageFiles() },
          ...{ isLocal: isLoopback(host), isDev: false, readOnly: false },
          onError: (error) => warn(describeError(error)),
        });
  const app = metrics.serve(console ?? nothing, runtime.journal);
  const { url } = await serveHttp(app, { host, port });
  print(JSON.stringify({ metrics: `${url}/metrics`, ...(console && { console: `${url}/` }) }));
}

type Log = (line: string) => void;

/** Logs one line: ids and messages of errors may contain several. */
function logLine(text: string): void {
  warn(text.replaceAll(/\s+/g, " "));
}

/** Reports a start, and a run that was taken over from a process that crashed or hangs. */
function reportRun(event: RunEvent, log: Log): void {
  if (event.type !== "taken") return;
  const { runId, workflow, crashes, takenOver } = event;
  if (!takenOver) {
    log(`run ${runId} of ${workflow}: executing`);
    return;
  }
  const when = crashes > 0 ? `${crashes} in a row` : "after it had recorded a step";
  logLine(`run ${runId} of ${workflow} was taken over: its process was lost, ${when}`);
}

function reportLoss(event: LockEvent): void {
  if (event.type === "lost") logLine(`lock ${quote(...event.names)} was lost: ${event.why}`);
}

/** A busy run was lost to another process. */
function reportOutcome(outcome: RunOutcome<unknown>, log: Log): void {
  const { runId, status } = outcome;
  if (status === "busy") logLine(`run ${runId} was lost: another process has taken it over`);
  else if (status === "suspended") log(`run ${runId}: parked: ${describeOutcome(outcome)}`);
  else log(`run ${runId}: ${describeOutcome(outcome)}`);
}

function reportEvent(event: WorkerEvent, log: Log): void {
  if (event.type === "executed") reportOutcome(event.outcome, log);
  if (event.type === "draining")
    note(`running: ${event.running}; a second signal aborts their steps`);
  if (event.type === "aborting") warn(`aborted runs: ${event.running}`);
  if (event.type === "outage") warn(`the journal is unavailable: ${describeError(event.error)}`);
  if (event.type === "recovered") warn("the journal is available again");
  if (event.type === "refused") {
    warn(`run ${event.runId} cannot be executed: ${describeError(event.error)}`);
  }
  if (event.type === "failed") warn(`${event.what}: ${describeError(event.error)}`);
}
