import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { CommandModule } from "yargs";
import { checkSpan, checkWhole } from "../../core/lock/checks.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import { readConfig } from "../../infra/config.ts";
import type { DevServer } from "../dev/dev-server.ts";
import { openTelemetryIfRegistered } from "../telemetry/if-registered.ts";
import { type CarryingArgs, MODULE_HELP, stores, withCarrying } from "./carrying.ts";
import { describe } from "./exit.ts";
import { note, print, toMillis, toWhole, warn } from "./options.ts";
import { onTwoSignals } from "./signals.ts";

interface DevArgs extends CarryingArgs {
  readonly file: string | undefined;
  readonly host: string;
  readonly port: string;
  readonly grace: string;
}

export const devCommand: CommandModule<unknown, DevArgs> = {
  command: "dev [file]",
  describe: "Serve workflows and stock over HTTP, on this machine",
  builder: (yargs) =>
    withCarrying(yargs)
      .positional("file", { type: "string", describe: "the module; without it, only stock" })
      .option("host", { type: "string", default: "127.0.0.1", describe: "where to listen" })
      .option("port", { type: "string", default: "4500", describe: "0: any that is free" })
      .option("grace", {
        type: "string",
        default: "30s",
        describe: "how long requests and steps under way may go on once it is told to end",
      })
      .example("$0 dev order.ts", "on the embedded store; loads order.ts again when it changes")
      .example("$0 dev --port 0 --store mysql://root@127.0.0.1/shop", "stock alone, on MySQL")
      .epilog(
        `${MODULE_HELP}

Prints one line of JSON with url, token and docs, then one for each request. The bearer
token is LOCKSTEP_TOKEN, or made up; only one that was made up is printed. A page at /docs shows all requests and tries them.
Sealed fences (Lockstep-Fence) are opened with LOCKSTEP_SECRET.

Ends on TERM, INT and HUP: answers what is under way, parks runs before their next step.
A second signal, or the end of --grace, aborts the steps.

Exit status: 0; 69 store unavailable, 64 usage.`,
      ),
  async handler(args) {
    const [grace, lease] = [toMillis("grace", args.grace), toMillis("lease", args.lease)];
    const port = toWhole("--port", args.port);
    checkSpan("--grace", grace, 0);
    checkSpan("--lease", lease, 100);
    checkWhole("--port", port, 0, 65_535);
    const { token: own } = readConfig();
    const token = own ?? randomBytes(24).toString("base64url");
    await stores(args, async (given) => {
      const dev = await start({ ...args, lease, port, token }, given);
      // Not before: a signal ends the process at once while a module that hangs is loaded.
      using told = onTwoSignals();
      told.second.addEventListener("abort", () => dev.now());
      const { url } = dev;
      print(JSON.stringify({ url, ...(own === undefined && { token }), docs: `${url}/docs` }));
      note(`curl --oauth2-bearer ${own === undefined ? token : "$LOCKSTEP_TOKEN"} ${url}/ready`);
      if (!told.first.aborted) await once(told.first, "abort");
      await dev.close(grace);
    });
  },
};

type Stores = Parameters<Parameters<typeof stores>[1]>[0];

interface Checked {
  readonly file: string | undefined;
  readonly host: string;
  readonly port: number;
  readonly lease: number;
  readonly token: string;
}

/** Loaded only here: no other command needs a server. */
async function start(
  { file, host, port, lease, token }: Checked,
  { services, journal, owner, telemetry }: Stores,
): Promise<DevServer> {
  const { DevServer } = await import("../dev/dev-server.ts");
  const { bearer } = await import("../http/auth.ts");
  const { inventory, locks } = services;
  const page = await pageIfInstalled();
  const otel = await openTelemetryIfRegistered();
  return DevServer.start({
    file,
    journal,
    owner,
    lease,
    services,
    telemetry,
    around: otel?.continued,
    server: { host, port },
    app: {
      authorize: bearer([token]),
      inventory,
      locks,
      secret: readConfig().secret,
      log: (entry) => print(JSON.stringify(entry)),
      ...(page && { page }),
    },
    onReload: (workflows) => note(`loaded ${file} again: ${namesOf(workflows)}`),
    onProblem: (error) => warn(describe(error)),
  });
}

async function pageIfInstalled() {
  const { swaggerPage } = await import("../http/swagger-page.ts");
  try {
    return await swaggerPage();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    note(error.message);
    return undefined;
  }
}

function namesOf(workflows: readonly AnyWorkflow[]): string {
  return workflows.map(({ name, version }) => `${name} v${version}`).join(", ");
}
