import { cp, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { run } from "../../infra/servers/processes.ts";
import { copyOfProject } from "./copy.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** A project as a user has it: with the packed package and its dependencies. */
export interface PackedProject extends AsyncDisposable {
  readonly folder: string;
}

/** Packs the package, and installs it with its dependencies in a folder of its own, without optional peers. */
export async function packedProject(): Promise<PackedProject> {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-packed-"));
  await using copy = await copyOfProject();
  await run("npm", ["pack", "--pack-destination", folder], { cwd: copy.folder });
  const [tarball = ""] = await readdir(folder);
  await writeFile(join(folder, "package.json"), '{ "private": true, "type": "module" }');
  await run("npm", ["install", "--no-audit", "--no-fund", join(folder, tarball)], { cwd: folder });
  return { folder, [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }) };
}

/** Returns a project with the same package, and with packages of this repository. */
export async function withPeers(
  { folder }: PackedProject,
  peers: readonly string[],
): Promise<PackedProject> {
  const other = await mkdtemp(join(tmpdir(), "lockstep-packed-"));
  // Commands are relative links.
  await cp(folder, other, { recursive: true, verbatimSymlinks: true });
  for (const peer of peers) {
    await symlink(join(root, "node_modules", peer), join(other, "node_modules", peer));
  }
  return {
    folder: other,
    [Symbol.asyncDispose]: () => rm(other, { recursive: true, force: true }),
  };
}
