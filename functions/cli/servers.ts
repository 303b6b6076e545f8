import type { CommandModule } from "yargs";
import { KINDS, type ServerName } from "../../infra/servers/kinds.ts";
import { down, status, up } from "../../infra/servers/registry.ts";
import { note, print } from "./options.ts";
import { table } from "./table.ts";

interface ServersArgs {
  readonly name: ServerName | undefined;
}

const NAMES = Object.keys(KINDS) as ServerName[];

export const serversCommand: CommandModule = {
  command: "servers <action>",
  describe: "Start real servers on this machine, to try things out",
  builder: (yargs) =>
    yargs
      .command(upCommand)
      .command(downCommand)
      .command(statusCommand)
      .demandCommand(1)
      .example("$0 servers up mysql", "prints its URL"),
  handler: () => {},
};

const upCommand: CommandModule<unknown, { readonly name: ServerName }> = {
  command: "up <name>",
  describe: "Start a server on loopback, and print its URL",
  builder: (yargs) =>
    yargs
      .positional("name", { choices: NAMES, demandOption: true, describe: "which one" })
      .example("$0 servers up mysql", "prints its URL")
      .epilog(
        "Takes what is on the PATH; as root on Debian or Ubuntu it installs what is missing; otherwise Docker.",
      ),
  async handler({ name }) {
    const { url, version } = await up(name, note);
    note(version);
    print(url);
  },
};

const downCommand: CommandModule<unknown, ServersArgs> = {
  command: "down [name]",
  describe: "Stop it, and throw its data away; without a name, all of them",
  builder: (yargs) =>
    yargs
      .positional("name", { choices: NAMES, describe: "which one" })
      .example("$0 servers down", "stop all that were started here"),
  async handler({ name }) {
    for (const server of await status(name)) {
      await down(server.name);
      note(`stopped ${server.name}`);
    }
  },
};

const statusCommand: CommandModule = {
  command: "status",
  describe: "List the servers that were started here",
  builder: (yargs) => yargs.example("$0 servers status", "what runs, and where"),
  async handler() {
    const servers = await status();
    const rows = servers.map(({ name, running, url, nodes, version }) => [
      name,
      running ? "running" : "gone",
      url,
      nodes.map(({ pid }) => pid).join(" "),
      version,
    ]);
    print(table(["server", "state", "url", "pids", "version"], rows));
  },
};
