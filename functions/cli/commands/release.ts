import type { CommandModule } from "yargs";
import { fenceOut } from "../../console/fence-out.ts";
import { formatJson } from "../../display/format-json.ts";
import { locksOption, type StoreArgs, storeOption } from "../options.ts";
import { withLocks, withStore } from "../store.ts";
import { print } from "../terminal/output.ts";

interface ReleaseArgs extends StoreArgs {
  readonly name: string;
  readonly fence: string;
  readonly locks: string | undefined;
}

/** A store that does not exist has no lock to free. */
const IF_THERE = { create: false };

export const releaseCommand: CommandModule<unknown, ReleaseArgs> = {
  command: "release <name>",
  describe: "Free a lock that another process holds",
  builder: (yargs) =>
    locksOption(storeOption(yargs), "the store of the locks")
      .positional("name", { type: "string", demandOption: true, describe: "the lock's name" })
      .option("fence", {
        type: "string",
        demandOption: true,
        requiresArg: true,
        describe: "the fence of its holder, as inspect shows it; another holder is refused",
      })
      .example("$0 release job --fence 0000000000.00000000000000000042", "free a lock that hangs")
      .epilog(
        `The holder is not stopped: it learns of the loss with its next renewal. The
stock of the store refuses its writes at once, any other resource that checks
the fence from the first write of the next holder on.`,
      ),
  handler: ({ name, fence, ...args }) =>
    withStore(
      args,
      (store) =>
        withLocks(
          args.locks,
          async (others) => {
            const { locks } = others ?? store;
            const was = await locks.release(name, { fence });
            const inventory = store.has("inventory") ? store.inventory : undefined;
            const isRefused = inventory !== undefined && (await fenceOut(inventory, locks, name));
            print(formatJson({ ...was, outcome: "released", fencedOut: isRefused }));
          },
          IF_THERE,
        ),
      IF_THERE,
    ),
};
