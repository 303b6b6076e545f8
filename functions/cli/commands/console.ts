import { once } from "node:events";
import type { CommandModule } from "yargs";
import { checkWhole } from "../../../core/lock/checks.ts";
import { createRuntime } from "../../../core/steps/runtime.ts";
import { readConfig } from "../../../infra/config.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { describeError } from "../exit-status.ts";
import { locksOption, parseInteger, type StoreArgs, storeOption } from "../options.ts";
import { listenForShutdown } from "../process/signals.ts";
import { codecOf, type ModuleArgs, moduleOption } from "../runtime.ts";
import { withLocks, withStore } from "../store.ts";
import { note, print, warn } from "../terminal/output.ts";

interface ConsoleArgs extends StoreArgs, ModuleArgs {
  readonly locks: string | undefined;
  readonly host: string;
  readonly port: string;
  readonly "read-only": boolean;
}

export const consoleCommand: CommandModule<unknown, ConsoleArgs> = {
  command: "console",
  describe: "Serve a page with the locks, the stock and the runs of a store",
  builder: (yargs) =>
    locksOption(moduleOption(storeOption(yargs)), "the store of the locks")
      .option("host", {
        type: "string",
        requiresArg: true,
        default: "127.0.0.1",
        describe: "the address to listen on",
      })
      .option("port", {
        type: "string",
        requiresArg: true,
        default: "4600",
        describe: "the port to listen on; 0 picks a free one",
      })
      .option("read-only", {
        type: "boolean",
        default: false,
        describe: "refuse all actions",
      })
      .example("$0 console --store mysql://root@127.0.0.1/shop", "look at a shop")
      .epilog(
        `Prints one line of JSON with the url, which may be opened in a browser. On
loopback, every user of this machine may use the page, unless LOCKSTEP_TOKEN
is set. On other addresses the page needs LOCKSTEP_TOKEN, or the random token
behind "#token=" in the url.

Exit status: 0 after a signal; 69 store unavailable, 64 usage.`,
      ),
  async handler(args) {
    const port = parseInteger("--port", args.port);
    checkWhole("--port", port, 0, 65_535);
    await withLocks(args.locks, (lockStore) =>
      withStore(args, (opened) => serve({ ...args, port }, opened, lockStore ?? opened)),
    );
  },
};

async function serve(
  {
    host,
    port,
    readOnly,
    module,
  }: Omit<ConsoleArgs, "port"> & { readonly port: number; readonly readOnly?: boolean },
  store: AnyStore,
  lockStore: AnyStore,
): Promise<void> {
  const { isLoopback } = await import("../../console/guard.ts");
  const { createConsole } = await import("../../console/console.ts");
  const { pageFiles } = await import("../../console/page-files.ts");
  const { serveHttp } = await import("../../http/server.ts");
  const { locks } = lockStore;
  const codec = await codecOf({ module });
  const isLocal = isLoopback(host);
  const { token: configured } = readConfig();
  const token = configured ?? (isLocal ? undefined : crypto.randomUUID());
  const app = createConsole({
    addresses: { store: store.url, locks: lockStore.url },
    locks,
    inventory: store.has("inventory") ? store.inventory : undefined,
    runtime: store.has("journal")
      ? createRuntime({ journal: store.journal, locks, codec })
      : undefined,
    page: await pageFiles(),
    ...{ token, isLocal, readOnly: readOnly ?? false, isDev: false },
    onError: (error) => warn(describeError(error)),
  });
  const server = await serveHttp(app, { host, port });
  using shutdown = listenForShutdown();
  const shown = configured === undefined && token !== undefined ? `/#token=${token}` : "/";
  print(JSON.stringify({ url: server.url + shown }));
  note("a signal ends the console");
  if (!shutdown.requested.aborted) await once(shutdown.requested, "abort");
  await server.close(0);
}
