import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { unzipSync } from "fflate";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

/** What `npm run package` has made. */
export interface Packaged extends AsyncDisposable {
  /** The CloudFormation template. */
  readonly template: Template;

  /** The zips, by the names of their functions. */
  readonly zips: Readonly<Record<string, Uint8Array>>;

  /** The folder in which each zip was unpacked into one of its function's name, as Lambda does. */
  readonly unpacked: string;
}

export interface Template {
  readonly Parameters: Readonly<Record<string, unknown>>;
  readonly Resources: Readonly<Record<string, Resource>>;
}

export interface Resource {
  readonly Type: string;
  // biome-ignore lint/suspicious/noExplicitAny: any property of any resource
  readonly Properties: any;
}

/** As in CI: with no network where one can be without (as root), no home and nothing about AWS in the environment. */
export async function packageAll(): Promise<Packaged> {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-package-"));
  const out = join(folder, "out");
  const command = `node infra/aws/bundle-functions.ts && osls package --package ${out} </dev/null`;
  const isRoot = process.getuid?.() === 0;
  const [file, ...args] = isRoot ? ["unshare", "-rn", "sh", "-c", command] : ["sh", "-c", command];
  const path = `${join(root, "node_modules/.bin")}:${process.env.PATH}`;
  await run(file as string, args, { cwd: root, env: { PATH: path, HOME: folder } });
  const unpacked = join(folder, "unpacked");
  const zips: Record<string, Uint8Array> = {};
  for (const file of (await readdir(out)).filter((file) => file.endsWith(".zip"))) {
    const name = basename(file, ".zip");
    const zip = await readFile(join(out, file));
    zips[name] = zip;
    for (const [path, bytes] of Object.entries(unzipSync(zip))) {
      const to = join(unpacked, name, path);
      await mkdir(dirname(to), { recursive: true });
      await writeFile(to, bytes);
    }
  }
  const text = await readFile(join(out, "cloudformation-template-update-stack.json"), "utf8");
  return {
    template: JSON.parse(text),
    zips,
    unpacked,
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}
