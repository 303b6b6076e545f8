import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { CommandModule } from "yargs";
import { checkSpan, checkWhole } from "../../../core/lock/checks.ts";
import type { AnyWorkflow } from "../../../core/steps/workflow.ts";
import { readConfig } from "../../../infra/config.ts";
import type { DevServer } from "../../dev/dev-server.ts";
import { formatJson } from "../../display/format-json.ts";
import type { DocsPage } from "../../http/options.ts";
import { openTelemetryIfRegistered } from "../../telemetry/if-registered.ts";
import type { PrometheusMetrics } from "../../telemetry/prometheus.ts";
import { describeError } from "../exit-status.ts";
import { parseDuration, parseInteger } from "../options.ts";
import { listenForShutdown } from "../process/signals.ts";
import {
  MODULE_HELP,
  type RunServices,
  type RuntimeArgs,
  runtimeOptions,
  withServices,
} from "../runtime.ts";
import { note, print, warn } from "../terminal/output.ts";

interface DevArgs extends RuntimeArgs {
  readonly file: string | undefined;
  readonly host: string;
  readonly port: string;
  readonly grace: string;
}

export const devCommand: CommandModule<unknown, DevArgs> = {
  command: "dev [file]",
  describe: "Serve workflows and stock over HTTP on this machine",
  builder: (yargs) =>
    runtimeOptions(yargs)
      .positional("file", {
        type: "string",
        describe: "the module; without it, only stock is served",
      })
      .option("host", {
        type: "string",
        requiresArg: true,
        default: "127.0.0.1",
        describe: "the address to listen on",
      })
      .option("port", {
        type: "string",
        requiresArg: true,
        default: "4500",
        describe: "the port to listen on; 0 picks a free one",
      })
      .option("grace", {
        type: "string",
        requiresArg: true,
        default: "30s",
        describe: "how long running requests and steps may continue after a signal to end",
      })
      .example("$0 dev order.ts", "use the embedded store; reload order.ts when it changes")
      .example("$0 dev --port 0 --store mysql://root@127.0.0.1/shop", "only stock, on MySQL")
      .epilog(
        `${MODULE_HELP}

Prints one line of JSON with url, token, console and docs, then one line for
each request. The console is a page with the locks, the stock and the runs. The bearer token is LOCKSTEP_TOKEN, or a random one; only a random
token is printed. If swagger-ui-dist is installed, /docs documents all
requests and sends them. /metrics answers Prometheus, without the token.
LOCKSTEP_SECRET opens sealed fences (Lockstep-Fence).

On TERM, INT or HUP, finishes running requests, parks runs before their next
step, and ends. A second signal, or the end of --grace, aborts the steps.

Exit status: 0; 69 store unavailable, 64 usage.`,
      ),
  async handler(args) {
    const [grace, lease] = [parseDuration("grace", args.grace), parseDuration("lease", args.lease)];
    const port = parseInteger("--port", args.port);
    checkSpan("--grace", grace, 0);
    checkSpan("--lease", lease, 100);
    checkWhole("--port", port, 0, 65_535);
    const { token: configured } = readConfig();
    const token = configured ?? randomBytes(24).toString("base64url");
    const { PrometheusMetrics } = await import("../../telemetry/prometheus.ts");
    const metrics = new PrometheusMetrics();
    const serve = async (runServices: RunServices) => {
      const page = await pageIfInstalled();
      const settings = { ...args, lease, port, token, page, metrics };
      const dev = await start(settings, runServices);
      // After the start: while the module is loaded, a signal must end the process at once.
      using shutdown = listenForShutdown();
      shutdown.forced.addEventListener("abort", () => dev.abort());
      const { url } = dev;
      const isRandom = configured === undefined;
      const links = {
        console: isRandom ? `${url}/#token=${token}` : `${url}/`,
        ...(page && { docs: `${url}/docs` }),
      };
      print(JSON.stringify({ url, ...(isRandom && { token }), ...links }));
      note(`curl --oauth2-bearer ${isRandom ? token : "$LOCKSTEP_TOKEN"} ${url}/ready`);
      if (!shutdown.requested.aborted) await once(shutdown.requested, "abort");
      await dev.close(grace);
    };
    await withServices(args, serve, metrics.telemetry);
  },
};

interface DevSettings {
  readonly file: string | undefined;
  readonly host: string;
  readonly port: number;
  readonly lease: number;
  readonly token: string;
  readonly page: DocsPage | undefined;
  readonly metrics: PrometheusMetrics;
}

/** Starts the server. Its modules are loaded here because no other command needs them. */
async function start(
  { file, host, port, lease, token, page, metrics }: DevSettings,
  { services, journal, owner, addresses, telemetry }: RunServices,
): Promise<DevServer> {
  const { createConsole, withConsole } = await import("../../console/console.ts");
  const { isLoopback } = await import("../../console/guard.ts");
  const { pageFiles } = await import("../../console/page-files.ts");
  const { DevServer } = await import("../../dev/dev-server.ts");
  const { bearer } = await import("../../http/auth.ts");
  const { inventory, locks } = services;
  const otel = await openTelemetryIfRegistered();
  const onError = (error: unknown) => warn(describeError(error));
  let dev: DevServer | undefined;
  const console = createConsole({
    ...{ addresses, locks, inventory, token, onError },
    // Another one after each change of the module.
    get runtime() {
      return dev?.runtime;
    },
    page: await pageFiles(),
    ...{ isLocal: isLoopback(host), isDev: true, readOnly: false },
  });
  dev = await DevServer.start({
    file,
    journal,
    owner,
    lease,
    services,
    telemetry,
    wrap: (app) => metrics.serve(withConsole(otel?.continueTraces(app) ?? app, console), journal),
    server: { host, port },
    app: {
      authorize: bearer([token]),
      inventory,
      locks,
      secret: readConfig().secret,
      log: (entry) => print(formatJson(entry)),
      onError,
      ...(page && { page }),
    },
    onReload: (workflows) => note(`loaded ${file} again: ${namesOf(workflows)}`),
    onProblem: onError,
  });
  return dev;
}

async function pageIfInstalled(): Promise<DocsPage | undefined> {
  const { swaggerPage } = await import("../../http/swagger-page.ts");
  try {
    return await swaggerPage();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    warn(error.message);
    return undefined;
  }
}

function namesOf(workflows: readonly AnyWorkflow[]): string {
  return workflows.map(({ name, version }) => `${name} v${version}`).join(", ");
}
