import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { stopContainer } from "./container.ts";
import { KINDS, type ServerName } from "./kinds.ts";
import { isOurs } from "./processes.ts";
import { type StartOptions, startServer } from "./start.ts";

/** Servers that outlive the command that started them: one of a kind, each in a file of this folder. */
const FOLDER = join(".lockstep", "servers");

export interface Registered {
  readonly name: ServerName;
  readonly version: string;
  readonly url: string;
  readonly nodes: readonly { readonly pid: number; readonly folder: string }[];

  /** The Docker project, where it runs in containers. */
  readonly project: string | undefined;

  /** Whether all of its processes are there. */
  readonly running: boolean;
}

/** Starts a server that stays, or finds the one that runs already. */
export async function up(
  name: ServerName,
  onProgress: NonNullable<StartOptions["onProgress"]>,
): Promise<Registered> {
  const [known] = await status(name);
  if (known?.running) return known;
  if (known) await down(name);
  const { version, url, nodes, project } = await startServer(name, { tied: false, onProgress });
  const registered = {
    name,
    version,
    url,
    nodes: nodes.map(({ pid, place }) => ({ pid, folder: place.folder })),
    project,
    running: true,
  };
  await mkdir(FOLDER, { recursive: true });
  await writeFile(fileOf(name), JSON.stringify(registered));
  return registered;
}

/** Stops a server that `up` has started, and throws its data away. */
export async function down(name: ServerName): Promise<void> {
  for (const { nodes, project } of await status(name)) {
    if (project) await stopContainer(project);
    for (const { pid, folder } of nodes) {
      if (isOurs(pid, folder)) process.kill(pid, "SIGKILL");
      await rm(folder, { recursive: true, force: true, maxRetries: 10 });
    }
  }
  await rm(fileOf(name), { force: true });
}

/** What `up` has started and `down` has not stopped. */
export async function status(name?: ServerName): Promise<readonly Registered[]> {
  const files = await readdir(FOLDER).catch((): string[] => []);
  const names = (Object.keys(KINDS) as ServerName[]).filter((each) => !name || each === name);
  const here = names.filter((each) => files.includes(`${each}.json`));
  return Promise.all(
    here.map(async (each) => {
      const registered = JSON.parse(await readFile(fileOf(each), "utf8")) as Registered;
      const running = registered.nodes.every(({ pid, folder }) => isOurs(pid, folder));
      return { ...registered, running };
    }),
  );
}

function fileOf(name: ServerName): string {
  return join(FOLDER, `${name}.json`);
}
