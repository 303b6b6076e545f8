import { access, constants, readFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { run } from "./node.ts";

/** Servers live in sbin, which the PATH of an ordinary user leaves out. */
const FOLDERS = [...(process.env.PATH ?? "").split(delimiter), "/usr/local/sbin", "/usr/sbin"];

/** The path of the first of `names` that is installed. */
export async function findBinary(names: readonly string[]): Promise<string | undefined> {
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

/** Whether packages can be installed here: as root, on Debian or what is made from it. */
export async function canInstall(): Promise<boolean> {
  if (process.getuid?.() !== 0 || !(await findBinary(["apt-get"]))) return false;
  const release = await readFile("/etc/os-release", "utf8").catch(() => "");
  return /^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(release);
}

/** Installs Debian packages. Their services are not started: every server here is our own. */
export async function install(packages: readonly string[]): Promise<void> {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" };
  await run("apt-get", ["update"], { env });
  await run("apt-get", ["install", "-y", "--no-install-recommends", ...packages], {
    env,
    maxBuffer: 64 * 2 ** 20,
  });
}
