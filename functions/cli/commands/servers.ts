import type { CommandModule } from "yargs";
import { KINDS, type ServerName } from "../../../infra/servers/kinds.ts";
import { down, status, up } from "../../../infra/servers/registry.ts";
import { jsonOption } from "../options.ts";
import { note, print } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";

interface ServersArgs {
  readonly name: ServerName | undefined;
}

const NAMES = Object.keys(KINDS) as ServerName[];

export const serversCommand: CommandModule = {
  command: "servers <action>",
  describe: "Start real servers on this machine, for development",
  builder: (yargs) =>
    yargs
      .command(upCommand)
      .command(downCommand)
      .command(statusCommand)
      .demandCommand(1)
      .example("$0 servers up mariadb", "print the URL of a new server"),
  handler: () => {},
};

const upCommand: CommandModule<unknown, { readonly name: ServerName }> = {
  command: "up <name>",
  describe: "Start a server on loopback and print its URL",
  builder: (yargs) =>
    yargs
      .positional("name", { choices: NAMES, demandOption: true, describe: "the server to start" })
      .example("$0 servers up mariadb", "print the URL of a new server")
      .epilog(
        "Uses a server from the PATH. Otherwise installs one, as root on Debian or Ubuntu, or starts\none in Docker.",
      ),
  async handler({ name }) {
    const { url, version } = await up(name, note);
    note(version);
    print(url);
  },
};

const downCommand: CommandModule<unknown, ServersArgs> = {
  command: "down [name]",
  describe: "Stop a server and delete its data; without a name, all servers",
  builder: (yargs) =>
    yargs
      .positional("name", { choices: NAMES, describe: "the server to stop" })
      .example("$0 servers down", "stop all servers that `up` has started"),
  async handler({ name }) {
    for (const server of await status(name)) {
      await down(server.name);
      note(`stopped ${server.name}`);
    }
  },
};

const statusCommand: CommandModule<unknown, { readonly json: boolean }> = {
  command: "status",
  describe: "List the servers that `up` has started",
  builder: (yargs) => jsonOption(yargs).example("$0 servers status", "show URLs and process ids"),
  async handler({ json }) {
    const servers = await status();
    if (json) return print(JSON.stringify(servers));
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
