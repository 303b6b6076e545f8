import { existsSync, lstatSync, statSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { quote } from "../../core/lock/errors.ts";

/** The folders of each kind, and the file at whose end the resources of CloudFormation stand. */
const KINDS = {
  osls: { folders: ["osls", "cloudformation"] },
  sam: { folders: ["sam"], resources: "template.yaml" },
  cdk: { folders: ["cdk"] },
  terraform: { folders: ["terraform"] },
} as const satisfies Record<string, { folders: readonly string[]; resources?: string }>;

/** The folders of each store. */
const STORES = {
  mysql: ["sql", "mysql", "stores/mysql"],
  "mysql+etcd": ["sql", "mysql", "stores/mysql+etcd"],
  postgres: ["sql", "postgres", "stores/postgres"],
  "postgres+etcd": ["sql", "postgres", "stores/postgres+etcd"],
  dynamodb: ["stores/dynamodb"],
} as const;

export const PROJECT_KINDS = Object.keys(KINDS) as readonly ProjectKind[];
export const PROJECT_STORES = Object.keys(STORES) as readonly ProjectStore[];

export type ProjectKind = keyof typeof KINDS;
export type ProjectStore = keyof typeof STORES;

export interface ProjectOptions {
  readonly folder: string;

  /** The name of the package and of the deployment. */
  readonly name: string;
  readonly kind: ProjectKind;
  readonly store: ProjectStore;

  /** The version of this package. */
  readonly version: string;
}

const TEMPLATES = fileURLToPath(new URL("templates/", import.meta.url));

/** The name of the project in the templates. */
const EXAMPLE = /\bmy-shop\b/g;

/** "NAME-STAGE-FUNCTION" names a function: 64 characters at most. */
const NAME = /^[a-z][a-z0-9-]{0,29}$/;

/** Writes a project and returns its files. Throws a TypeError, and writes nothing, if one of the files exists. */
export async function writeProject(options: ProjectOptions): Promise<readonly string[]> {
  if (!NAME.test(options.name)) {
    const rule = "1 to 30 lower-case letters, digits and hyphens, a letter first";
    const problem = `the name of the project is ${rule}, not ${quote(options.name)}`;
    throw new TypeError(`${problem}; without --name, it is that of the folder`);
  }
  if (options.folder === "") throw new TypeError("the folder of the project must not be empty");
  const files = await filesOf(options);
  const existing = inTheWay(options.folder, [...files.keys()]);
  if (existing.length > 0) {
    const problem = `${options.folder} already has ${existing.join(", ")}`;
    throw new TypeError(`${problem}: nothing was written; choose another folder`);
  }
  for (const [path, text] of files) {
    const file = join(options.folder, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text, { flag: "wx" });
  }
  return [...files.keys()];
}

/** Returns the files that exist, and what stands in the place of a folder. */
function inTheWay(folder: string, paths: readonly string[]): readonly string[] {
  const folders = [".", ...new Set(paths.map(dirname))];
  const noFolders = folders.filter((path) => isNoFolder(join(folder, path)));
  const existing = paths.filter((path) => existsSync(join(folder, path)));
  return [...new Set([...noFolders.map((path) => `${path} (no folder)`), ...existing])];
}

const QUIETLY = { throwIfNoEntry: false } as const;

/** Whether there is something else than a folder, such as a file or a link to nothing. */
function isNoFolder(path: string): boolean {
  try {
    const isThere = lstatSync(path, QUIETLY) !== undefined;
    return isThere && !statSync(path, QUIETLY)?.isDirectory();
  } catch {
    // An ancestor is no folder.
    return false;
  }
}

/** The text of each file, by its path. */
async function filesOf(options: ProjectOptions): Promise<ReadonlyMap<string, string>> {
  const { name, kind, store, version } = options;
  const { folders, resources } = { resources: undefined, ...KINDS[kind] };
  const files = new Map<string, string>();
  for (const folder of ["common", ...STORES[store], ...folders]) {
    for (const [path, text] of await templatesIn(folder)) {
      const known = files.get(path);
      files.set(path, known === undefined ? text : merge(known, text));
    }
  }
  if (resources !== undefined) {
    const shared = (await templatesIn("cloudformation")).get("resources.yml") ?? "";
    const [, body = ""] = shared.split(/^Resources:\n/m);
    files.set(resources, `${files.get(resources)}${body}`);
  }
  const own: readonly string[] = [...store.split("+"), ...STORES[store]];
  const isOther = (marked: string) => !own.includes(marked);
  return new Map(
    [...files].map(([path, text]) => [
      path,
      withoutMarked(text, isOther)
        .replaceAll(EXAMPLE, name)
        .replace('"lockstep": "*"', `"lockstep": "^${version}"`),
    ]),
  );
}

async function templatesIn(folder: string): Promise<ReadonlyMap<string, string>> {
  const root = join(TEMPLATES, folder);
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  const read = files.map(async ({ parentPath, name }) => {
    const file = join(parentPath, name);
    // npm leaves files called .gitignore out of a package.
    const path = file.slice(root.length + 1).replace(/^gitignore$/, ".gitignore");
    return [path, await readFile(file, "utf8")] as const;
  });
  return new Map((await Promise.all(read)).sort(([a], [b]) => (a < b ? -1 : 1)));
}

type Json = { readonly [key: string]: string | boolean | Json };

/** Merges two files package.json. */
function merge(base: string, more: string): string {
  const [first, second]: [Json, Json] = [JSON.parse(base), JSON.parse(more)];
  const all: Record<string, unknown> = { ...first };
  for (const [key, value] of Object.entries(second)) {
    all[key] = typeof value === "object" ? { ...Object(first[key]), ...value } : value;
  }
  return `${JSON.stringify(all, null, 2)}\n`;
}

/**
 * Removes the blocks between the comments <STORE> and </STORE> of other stores, and all such comments. A project with the
 * store mysql+etcd keeps the blocks of sql, mysql and etcd. A block contains no other block.
 */
function withoutMarked(text: string, isOther: (store: string) => boolean): string {
  let inOther = false;
  const lines = text.split("\n").filter((line) => {
    const [, end, store] = /^\s*(?:#|\/\/|<!--) <(\/?)(\S+?)>(?: -->)?$/.exec(line) ?? [];
    if (store === undefined) return !inOther;
    inOther = end === "" && isOther(store);
    return false;
  });
  return lines.join("\n");
}
