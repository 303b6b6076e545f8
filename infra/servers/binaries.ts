import { access, constants, readFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { run } from "./node.ts";

/** Servers live in sbin, which the PATH of an ordinary user leaves out. */
const FOLDERS = [...(process.env.PATH ?? "").split(delimiter), "/usr/local/sbin", "/usr/sbin"];

/** The path of the first of the binaries that is installed, together with the files that it needs. */
async function findRequired({ binaries, needs = [] }: Requirement): Promise<string | undefined> {
  const found = await findBinary(binaries);
  const isComplete = (await Promise.all(needs.map(isReadable))).every(Boolean);
  return isComplete ? found : undefined;
}

/** The path of the first of `names` that is installed. */
async function findBinary(names: readonly string[]): Promise<string | undefined> {
  for (const name of names) {
    for (const folder of FOLDERS) {
      const path = join(folder, name);
      if (await isExecutable(path)) return path;
    }
  }
  return undefined;
}

async function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

async function isReadable(path: string): Promise<boolean> {
  return access(path, constants.R_OK).then(
    () => true,
    () => false,
  );
}

/** What has to be there, and where it comes from on Debian. */
export interface Requirement {
  /** Any one of them will do. */
  readonly binaries: readonly string[];

  /** All of these files besides. Default none. */
  readonly needs?: readonly string[];
  readonly packages: readonly string[];
}

let installing: Promise<unknown> = Promise.resolve();

/** The path of one of the binaries; it is installed first where it is missing and that can be done. */
export async function findOrInstall(
  required: Requirement,
  onProgress: (step: string) => void,
): Promise<string | undefined> {
  const found = await findRequired(required);
  if (found || !(await canInstall())) return found;
  // One after the other: apt refuses to run twice at a time, and may bring what the next one needs.
  const installed = installing.then(() => installMissing(required, onProgress));
  installing = installed.catch(() => {});
  return installed;
}

async function installMissing(
  required: Requirement,
  onProgress: (step: string) => void,
): Promise<string | undefined> {
  const found = await findRequired(required);
  if (found) return found;
  onProgress(`installing ${required.packages.join(", ")}`);
  await install(required.packages);
  return findRequired(required);
}

/** Whether packages can be installed here: as root, on Debian or what is made from it. */
async function canInstall(): Promise<boolean> {
  if (process.getuid?.() !== 0 || !(await findBinary(["apt-get"]))) return false;
  const release = await readFile("/etc/os-release", "utf8").catch(() => "");
  return /^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(release);
}

/** Installs Debian packages. Their services are not started: every server here is our own. */
async function install(packages: readonly string[]): Promise<void> {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" };
  await run("apt-get", ["update"], { env });
  await run("apt-get", ["install", "-y", "--no-install-recommends", ...packages], {
    env,
    maxBuffer: 64 * 2 ** 20,
  });
}
