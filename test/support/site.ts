import { existsSync, globSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { run } from "../../infra/servers/processes.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const BUILT = join(ROOT, "docs/site/build/site");

/** Builds the site of the documentation as its readers do. Installs its packages first if they are missing. */
export async function builtSite(): Promise<Site> {
  await run("npm", ["run", "docs"], { cwd: ROOT });
  return new Site();
}

class Site {
  /** The HTML of every page, by its path in the site. */
  readonly pages: ReadonlyMap<string, string> = new Map(
    globSync("**/*.html", { cwd: BUILT }).map((path) => [
      `/${path}`,
      readFileSync(join(BUILT, path), "utf8"),
    ]),
  );

  /** Returns the file that a static server would answer a path with. */
  fileOf(path: string): string | undefined {
    const name = path.endsWith("/") ? `${path}index.html` : path;
    const file = join(BUILT, extname(name) === "" ? `${name}.html` : name);
    return existsSync(file) ? file : undefined;
  }

  text(path: string): string {
    return readFileSync(join(BUILT, path), "utf8");
  }
}
