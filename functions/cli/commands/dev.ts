import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { CommandModule } from "yargs";
import { checkSpan, checkWhole } from "../../../core/lock/checks.ts";
import type { AnyWorkflow } from "../../../core/steps/workflow.ts";
import { readConfig } from "../../../infra/config.ts";
import type { DevServer } from "../../dev/dev-server.ts";
import type { DocsPage } from "../../http/options.ts";
import { openTelemetryIfRegistered } from "../../telemetry/if-registered.ts";
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
        default: "127.0.0.1",
        describe: "the address to listen on",
      })
      .option("port", {
        type: "string",
        default: "4500",
        describe: "the port to listen on; 0 picks a free one",
      })
      .option("grace", {
        type: "string",
        default: "30s",
        describe: "how long running requests and steps may continue after a signal to end",
      })
      .example("$0 dev order.ts", "use the embedded store; reload order.ts when it changes")
      .example("$0 dev --port 0 --store mysql://root@127.0.0.1/shop", "only stock, on MySQL")
      .epilog(
        `${MODULE_HELP}

Prints one line of JSON with url, token and docs, then one line for each
request. The bearer token is LOCKSTEP_TOKEN, or a random one; only a random
token is printed. If swagger-ui-dist is installed, /docs documents all
requests and sends them. LOCKSTEP_SECRET opens sealed fences
(Lockstep-Fence).

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
    await withServices(args, async (runServices) => {
      const page = await pageIfInstalled();
      const dev = await start({ ...args, lease, port, token, page }, runServices);
      // After the start: while the module is loaded, a signal must end the process at once.
      using shutdown = listenForShutdown();
      shutdown.forced.addEventListener("abort", () => dev.abort());
      const { url } = dev;
      const docs = page && { docs: `${url}/docs` };
      print(JSON.stringify({ url, ...(configured === undefined && { token }), ...docs }));
      note(
        `curl --oauth2-bearer ${configured === undefined ? token : "$LOCKSTEP_TOKEN"} ${url}/ready`,
      );
      if (!shutdown.requested.aborted) await once(shutdown.requested, "abort");
      await dev.close(grace);
    });
  },
};

interface DevSettings {
  readonly file: string | undefined;
  readonly host: string;
  readonly port: number;
  readonly lease: number;
  readonly token: string;
  readonly page: DocsPage | undefined;
}

/** Starts the server. Its modules are loaded here because no other command needs them. */
async function start(
  { file, host, port, lease, token, page }: DevSettings,
  { services, journal, owner, telemetry }: RunServices,
): Promise<DevServer> {
  const { DevServer } = await import("../../dev/dev-server.ts");
  const { bearer } = await import("../../http/auth.ts");
  const { inventory, locks } = services;
  const otel = await openTelemetryIfRegistered();
  return DevServer.start({
    file,
    journal,
    owner,
    lease,
    services,
    telemetry,
    wrap: otel?.continueTraces,
    server: { host, port },
    app: {
      authorize: bearer([token]),
      inventory,
      locks,
      secret: readConfig().secret,
      log: (entry) => print(JSON.stringify(entry)),
      onError: (error) => warn(describeError(error)),
      ...(page && { page }),
    },
    onReload: (workflows) => note(`loaded ${file} again: ${namesOf(workflows)}`),
    onProblem: (error) => warn(describeError(error)),
  });
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
