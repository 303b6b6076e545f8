import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { run } from "../../infra/servers/processes.ts";

const FOLDER = new URL("./peers/", import.meta.url);

/** Installs the packages of the comparisons. Only benchmarks need them. */
export async function installPeers(onProgress: (step: string) => void): Promise<void> {
  if (existsSync(new URL("node_modules/.package-lock.json", FOLDER))) return;
  onProgress("installing the packages of the comparisons");
  await run("npm", ["ci", "--no-audit", "--no-fund"], { cwd: fileURLToPath(FOLDER) });
}

/** Loads a module of the folder. The compiler does not see the import: the packages may not be installed. */
export async function loadPeer<T>(name: string): Promise<T> {
  return import(new URL(`${name}.ts`, FOLDER).href);
}
