import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findOrInstall } from "./binaries.ts";
import { hasDocker, startContainer } from "./container.ts";
import { type Command, KINDS, type Place, type ServerKind, type ServerName } from "./kinds.ts";
import { run, ServerNode } from "./node.ts";
import { freePort } from "./processes.ts";
import { forget, reap } from "./reap.ts";

/** A real server on loopback, with data that is thrown away when it stops. */
export interface Server extends AsyncDisposable {
  readonly name: ServerName;
  readonly version: string;
  readonly url: string;

  /** The processes of the server; none where it runs in containers. */
  readonly nodes: readonly ServerNode[];

  /** The Docker project, where it runs in containers. */
  readonly project?: string;
  stop(): Promise<void>;
}

export interface StartOptions {
  /** Whether the server ends with this process, even if that is killed. Default true. */
  readonly tied?: boolean;

  /** The server's binary, in place of the one that is installed. */
  readonly binary?: string | undefined;

  /** More arguments for the server's command line. */
  readonly args?: readonly string[];

  /** More variables in the environment of each process. Then it is not started in Docker. */
  readonly env?: (place: Place) => NodeJS.ProcessEnv;

  /** Told about what takes long, for a progress display. */
  readonly onProgress?: (step: string) => void;
}

/** Starts a server: from a binary on the PATH, else from Debian's packages as root, else in Docker. */
export async function startServer(name: ServerName, options: StartOptions = {}): Promise<Server> {
  const { tied = true, args = [], env, onProgress = () => {} } = options;
  const kind: ServerKind = KINDS[name];
  const binary = options.binary ?? (await findOrInstall(kind, onProgress));
  onProgress(`starting ${name}`);
  if (binary) return startNodes(name, kind, { binary, args, env, tied });
  if (!env && (await hasDocker())) return startContainer(name, kind);
  throw new NoServerError(name, kind);
}

/** Nothing can be started here; the message says what to install. */
class NoServerError extends Error {
  override readonly name = "NoServerError";

  constructor(name: ServerName, { binaries, packages }: ServerKind) {
    super(
      `there is no ${name} server here: put ${binaries.join(" or ")} on the PATH ` +
        `(Debian: apt-get install ${packages.join(" ")}) or start Docker`,
    );
  }
}

interface Processes extends Required<Pick<StartOptions, "args" | "tied">> {
  readonly binary: string;
  readonly env: StartOptions["env"] | undefined;
}

async function startNodes(
  name: ServerName,
  kind: ServerKind,
  { binary, args, env, tied }: Processes,
): Promise<Server> {
  const [version = ""] = (await run(binary, kind.version ?? ["--version"])).trim().split("\n");
  const places = await Promise.all(Array.from({ length: kind.size }, () => makePlace(name, kind)));
  if (tied) for (const { folder } of places) reap(folder);
  const nodes = places.map((place) => {
    const [file, ...rest] = kind.start(binary, version, place, places);
    const command: Command = [file, ...rest, ...args];
    return new ServerNode({ place, command, env: env?.(place), serves: kind.serves });
  });
  const stop = async () => {
    await Promise.all(nodes.map((node) => node.kill("SIGKILL")));
    await Promise.all(places.map(({ folder }) => discard(folder)));
  };
  try {
    await Promise.all(places.map((place) => prepare(kind, { binary, version, place, places })));
    await Promise.all(nodes.map((node) => node.start()));
  } catch (error) {
    await stop();
    throw error;
  }
  const url = kind.url(places.map(({ port }) => port));
  return { name, version, url, nodes, stop, [Symbol.asyncDispose]: stop };
}

async function makePlace(name: string, { peerPorts = 0 }: ServerKind): Promise<Place> {
  return {
    port: await freePort(),
    peerPorts: await Promise.all(Array.from({ length: peerPorts }, freePort)),
    folder: await mkdtemp(join(tmpdir(), `lockstep-${name}-`)),
  };
}

interface Preparation {
  readonly binary: string;
  readonly version: string;
  readonly place: Place;
  readonly places: readonly Place[];
}

async function prepare(
  kind: ServerKind,
  { binary, version, place, places }: Preparation,
): Promise<void> {
  await mkdir(join(place.folder, "data"));
  for (const [file, text] of Object.entries(kind.files?.(place, places) ?? {})) {
    await writeFile(join(place.folder, file), text);
  }
  const command = kind.prepare?.(binary, version, place);
  if (command) await run(command[0], command.slice(1));
}

async function discard(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  forget(folder);
}
