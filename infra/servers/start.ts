import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findOrInstall, installHint, NotInstalledError } from "./binaries.ts";
import { hasDocker, startContainer } from "./container.ts";
import { KINDS, type ServerName } from "./kinds.ts";
import { freePort, run } from "./processes.ts";
import { forget, reap } from "./reap.ts";
import { type Server, ServerNode } from "./server.ts";
import type { Command, NodeConfig, ServerKind } from "./server-kind.ts";

export interface StartOptions {
  /** Whether the server ends with this process, even if this process is killed. Default true. */
  readonly stopWithProcess?: boolean;

  /** Where the folders of the processes are made. Default: the system's folder for temporary files. Excludes Docker. */
  readonly parent?: string | undefined;

  /** Chooses where the process with this port runs. Default: on loopback, as its clients. For etcd and ZooKeeper. Excludes Docker. */
  readonly place?: ((port: number) => Promise<Placement>) | undefined;

  /** The server's binary. Default: the installed one. */
  readonly binary?: string | undefined;

  /** Additional arguments of the server's command, or those of each process. */
  readonly args?: readonly string[] | ProcessArgs;

  /** Returns additional environment variables of a process. Excludes Docker. */
  readonly env?: (config: NodeConfig) => NodeJS.ProcessEnv;

  /** Whether the process on this port serves requests. For arguments that refuse a probe without a login. Excludes Docker. */
  readonly serves?: ServerKind["serves"];

  /** Called with each step that takes time. */
  readonly onProgress?: (step: string) => void;
}

/** Another network than that of the clients. */
export interface Placement {
  /** The address of the process there. */
  readonly host: string;

  /** Returns the command that runs a command there, in the same process. */
  readonly enter: (command: Command) => Command;
}

type ProcessArgs = (config: NodeConfig, all: readonly NodeConfig[]) => readonly string[];

/** Starts a server from a binary on the PATH, from Debian's packages (as root), or in Docker, in this order. */
export async function startServer(name: ServerName, options: StartOptions = {}): Promise<Server> {
  const { stopWithProcess = true, parent, place, args = [], env, onProgress = () => {} } = options;
  const kind: ServerKind = { ...KINDS[name], ...(options.serves && { serves: options.serves }) };
  const binary = options.binary ?? (await findOrInstall(kind, onProgress));
  onProgress(`starting ${name}`);
  if (binary) return startNodes(name, kind, { binary, parent, place, args, env, stopWithProcess });
  if (!env && !parent && !place && !options.serves && (await hasDocker()))
    return startContainer(name, kind);
  const alternative = name === "mysql" ? "; MariaDB is called mariadb" : "";
  const hint = `${installHint(kind)} or start Docker${alternative}`;
  throw new NotInstalledError(`${name} is not installed: ${hint}`);
}

interface NodeOptions extends Required<Pick<StartOptions, "args" | "stopWithProcess">> {
  readonly binary: string;
  readonly parent: string | undefined;
  readonly place: StartOptions["place"];
  readonly env: StartOptions["env"] | undefined;
}

async function startNodes(
  name: ServerName,
  kind: ServerKind,
  { binary, parent, place, args, env, stopWithProcess }: NodeOptions,
): Promise<Server> {
  const [version = ""] = (await run(binary, kind.version ?? ["--version"])).trim().split("\n");
  const places = await Promise.all(Array.from({ length: kind.size }, () => choosePlace(place)));
  const configs = await Promise.all(
    places.map(({ host, port }) => makeConfig(name, kind, { host, port, parent })),
  );
  if (stopWithProcess) for (const { folder } of configs) reap(folder);
  const nodes = configs.map((config, i) => {
    const [file, ...rest] = kind.start(binary, version, config, configs);
    const more = typeof args === "function" ? args(config, configs) : args;
    const own = asUser(kind, [file, ...rest, ...more]);
    const command = places[i]?.enter(own) ?? own;
    return new ServerNode({ config, command, env: env?.(config), serves: kind.serves });
  });
  const stop = async () => {
    await Promise.all(nodes.map((node) => node.kill(kind.stopSignal ?? "SIGKILL")));
    await Promise.all(configs.map(({ folder }) => discard(folder)));
  };
  try {
    await Promise.all(configs.map((config) => prepare(kind, { binary, version, config, configs })));
    await Promise.all(nodes.map((node) => node.start()));
  } catch (error) {
    await stop();
    throw error;
  }
  const url = kind.url(configs.map(({ port }) => port));
  return { name, version, url, nodes, stop, [Symbol.asyncDispose]: stop };
}

async function choosePlace(place: StartOptions["place"]) {
  const port = await freePort();
  const here: Placement = { host: "127.0.0.1", enter: (command) => command };
  return { port, ...here, ...(await place?.(port)) };
}

async function makeConfig(
  name: string,
  { peerPorts = 0 }: ServerKind,
  { parent = tmpdir(), ...at }: Pick<NodeConfig, "host" | "port"> & Pick<StartOptions, "parent">,
): Promise<NodeConfig> {
  return {
    ...at,
    peerPorts: await Promise.all(Array.from({ length: peerPorts }, freePort)),
    folder: await mkdtemp(join(parent, `lockstep-${name}-`)),
  };
}

interface Preparation {
  readonly binary: string;
  readonly version: string;
  readonly config: NodeConfig;
  readonly configs: readonly NodeConfig[];
}

async function prepare(
  kind: ServerKind,
  { binary, version, config, configs }: Preparation,
): Promise<void> {
  await mkdir(join(config.folder, "data"));
  for (const [file, text] of Object.entries(kind.files?.(config, configs) ?? {})) {
    await writeFile(join(config.folder, file), text);
  }
  if (kind.user && IS_ROOT) await run("chown", ["-R", `${kind.user}:`, config.folder]);
  const command = kind.prepare?.(binary, version, config, configs);
  if (!command) return;
  const [file, ...args] = asUser(kind, command);
  await run(file, args, { cwd: config.folder });
}

const IS_ROOT = process.getuid?.() === 0;

/** Not runuser, which stands between the server and the signals for it. */
function asUser({ user }: ServerKind, command: Command): Command {
  if (user === undefined || !IS_ROOT) return command;
  return ["setpriv", `--reuid=${user}`, `--regid=${user}`, "--init-groups", "--", ...command];
}

async function discard(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 10 });
  forget(folder);
}
