import { globSync } from "node:fs";
import { access, constants, readFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { sleep } from "../../core/lock/abort.ts";
import { run } from "./processes.ts";

/** The folders of server binaries: the PATH of an ordinary user includes neither sbin nor Debian's folder of PostgreSQL. */
function folders(): readonly string[] {
  const path = (process.env.PATH ?? "").split(delimiter);
  const postgres = globSync("/usr/lib/postgresql/*/bin").sort().reverse();
  return [...path, "/usr/local/sbin", "/usr/sbin", ...postgres];
}

/** Returns the path of the first installed binary, if the files that it needs are installed as well. */
async function findRequired(required: Requirement): Promise<string | undefined> {
  const { binaries, needs = [], isVersion } = required;
  const found = await findBinary(binaries);
  if (found && isVersion && !isVersion(await run(found, ["--version"]))) return undefined;
  const isComplete = (await Promise.all(needs.map(isReadable))).every(Boolean);
  return isComplete ? found : undefined;
}

/** Returns the path of the first of `names` that is installed. */
async function findBinary(names: readonly string[]): Promise<string | undefined> {
  for (const name of names) {
    for (const folder of folders()) {
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

/** A required program, and its packages on Debian. */
export interface Requirement {
  /** Alternative names of the binary. */
  readonly binaries: readonly string[];

  /** Required files. Default none. */
  readonly needs?: readonly string[];

  /** Accepts a version, if other programs have the same name. Default: accepts all. */
  isVersion?(version: string): boolean;

  /** The packages on Debian; empty if Debian has none. */
  readonly packages: readonly string[];

  /** The package of npm with the required files, where Debian has none. */
  readonly npm?: string;
}

/** Error for a missing program that cannot be installed. The message names its packages. */
export class NotInstalledError extends Error {
  override readonly name = "NotInstalledError";
}

let installing: Promise<unknown> = Promise.resolve();

/** Returns the path of the binary. Installs it first if it is missing and packages can be installed here. */
export async function findOrInstall(
  required: Requirement,
  onProgress: (step: string) => void,
): Promise<string | undefined> {
  const found = await findRequired(required);
  if (found || required.packages.length === 0 || !(await canInstall())) return found;
  // In sequence: apt refuses to run twice at a time, and may install what the next call needs.
  const installed = installing.then(() => installMissing(required, onProgress));
  installing = installed.catch(() => {});
  return installed;
}

/** Like `findOrInstall`, but throws a NotInstalledError if the binary is missing. */
export async function findOrThrow(
  required: Requirement,
  onProgress: (step: string) => void,
): Promise<string> {
  const found = await findOrInstall(required, onProgress);
  if (found !== undefined) return found;
  throw new NotInstalledError(`${required.binaries[0]} is not installed: ${installHint(required)}`);
}

/** Describes how to install the program. */
export function installHint({ binaries, packages, npm }: Requirement): string {
  const hint = `${npm ? `npm install ${npm}, ` : ""}put ${binaries.join(" or ")} on the PATH`;
  return packages.length === 0 ? hint : `${hint} (Debian: apt-get install ${packages.join(" ")})`;
}

async function installMissing(
  required: Requirement,
  onProgress: (step: string) => void,
): Promise<string | undefined> {
  const found = await findRequired(required);
  if (found) return found;
  onProgress(`installing ${required.packages.join(", ")}`);
  await install(required.packages, onProgress).catch((error: Error) => {
    throw new NotInstalledError(error.message, { cause: error });
  });
  return findRequired(required);
}

/** Whether packages can be installed here: as root, on Debian or a derivative. */
async function canInstall(): Promise<boolean> {
  if (process.getuid?.() !== 0 || !(await findBinary(["apt-get"]))) return false;
  const release = await readFile("/etc/os-release", "utf8").catch(() => "");
  return /^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(release);
}

/** Installs Debian packages without starting their services. */
async function install(
  packages: readonly string[],
  onProgress: (step: string) => void,
): Promise<void> {
  await aptGet(["update"], onProgress);
  await aptGet(["install", "-y", "--no-install-recommends", ...packages], onProgress);
}

/** How long to wait for another apt, in milliseconds: a new machine installs its updates first. */
const BUSY_LIMIT = 10 * 60_000;

/** Runs apt-get when no other apt runs. apt-get waits for dpkg's lock, but not for its own two locks. */
async function aptGet(args: readonly string[], onProgress: (step: string) => void): Promise<void> {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1", LC_ALL: "C" };
  const wait = ["-o", `DPkg::Lock::Timeout=${BUSY_LIMIT / 1_000}`];
  const giveUpAt = Date.now() + BUSY_LIMIT;
  for (;;) {
    try {
      await run("apt-get", [...wait, ...args], { env, maxBuffer: 64 * 2 ** 20 });
      return;
    } catch (error) {
      const isLocked = error instanceof Error && error.message.includes("Could not get lock");
      if (!isLocked || Date.now() > giveUpAt) throw error;
    }
    onProgress("waiting for another apt to end");
    await sleep(1_000);
  }
}
