import { readFileSync } from "node:fs";

/** Returns a package and its version; its name alone, if it is not installed yet. */
export function versionOf(name: string): string {
  const folders = ["../bench/peers/node_modules", "../../node_modules"];
  const files = folders.map((folder) => new URL(`${folder}/${name}/package.json`, import.meta.url));
  for (const file of files) {
    try {
      return `${name} ${JSON.parse(readFileSync(file, "utf8")).version}`;
    } catch {
      // It stands in the other folder, or is not installed yet.
    }
  }
  return name;
}
