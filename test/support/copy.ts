import { cp, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

const SOURCES = ["core", "functions", "infra", "LICENSE", "README.md", "package.json"];
const CONFIGURATION = ["tsconfig.json", "tsconfig.build.json"];

/** Copies the project for a build: a build removes files that other tests use. */
export async function copyOfProject(): Promise<{ readonly folder: string } & AsyncDisposable> {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-copy-"));
  for (const name of [...SOURCES, ...CONFIGURATION]) {
    await cp(join(root, name), join(folder, name), { recursive: true });
  }
  await symlink(join(root, "node_modules"), join(folder, "node_modules"));
  const remove = () => rm(folder, { recursive: true, force: true });
  return { folder, [Symbol.asyncDispose]: remove };
}
