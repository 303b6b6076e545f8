import { cp, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { run } from "../../infra/servers/processes.ts";
import { copyOfProject } from "./copy.ts";
import { oncePerRun } from "./once-per-run.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** A project as a user has it: with the packed package and its dependencies. */
export interface PackedProject extends AsyncDisposable {
  readonly folder: string;
}

/** Makes a project without optional peers, except for packages of this repository. */
export async function packedProject(...peers: readonly string[]): Promise<PackedProject> {
  const installed = await oncePerRun("packed", installPackage);
  const folder = await newFolder();
  // Commands are relative links.
  await cp(installed, folder, { recursive: true, verbatimSymlinks: true });
  for (const peer of peers) {
    const link = join(folder, "node_modules", peer);
    await mkdir(dirname(link), { recursive: true });
    await symlink(join(root, "node_modules", peer), link);
  }
  return { folder, [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }) };
}

/** Packs the package, and installs it with its dependencies in a folder. Returns the folder. */
async function installPackage(): Promise<string> {
  const folder = await newFolder();
  await using copy = await copyOfProject();
  await run("npm", ["pack", "--pack-destination", folder], { cwd: copy.folder });
  const [tarball = ""] = await readdir(folder);
  await writeFile(join(folder, "package.json"), '{ "private": true, "type": "module" }');
  await run("npm", ["install", "--no-audit", "--no-fund", join(folder, tarball)], { cwd: folder });
  return folder;
}

function newFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), "lockstep-packed-"));
}
