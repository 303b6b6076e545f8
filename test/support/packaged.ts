import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { unzipSync } from "fflate";
import type { Template } from "./deployment/cloudformation.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

/** The output of `npm run package`. */
export interface Packaged extends AsyncDisposable {
  /** The CloudFormation template, and its text. */
  readonly template: Template;
  readonly text: string;

  /** The zips, by the names of their functions. */
  readonly zips: Readonly<Record<string, Uint8Array>>;

  /** The folder with the unpacked zips, one folder per function. */
  readonly unpacked: string;
}

/** Runs as in CI: without a network (if root), a home folder and AWS variables. `bundled`: the bundles are there already. */
export async function packageAll({ stage = "dev", bundled = false } = {}): Promise<Packaged> {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-package-"));
  const out = join(folder, "out");
  const osls = `osls package --stage ${stage} --package ${out} </dev/null`;
  const command = bundled ? osls : `node infra/aws/bundle-functions.ts && ${osls}`;
  const isRoot = process.getuid?.() === 0;
  const [file, ...args] = isRoot ? ["unshare", "-rn", "sh", "-c", command] : ["sh", "-c", command];
  const path = `${join(root, "node_modules/.bin")}:${process.env.PATH}`;
  const { NODE_COMPILE_CACHE } = process.env;
  const env = { PATH: path, HOME: folder, SOURCE_DATE_EPOCH: "1700000000", NODE_COMPILE_CACHE };
  await run(file as string, args, { cwd: root, env });
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
    text,
    zips,
    unpacked,
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}
