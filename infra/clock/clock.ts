import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Millis } from "../../core/lock/time.ts";
import { findOrInstall } from "../servers/binaries.ts";
import { run } from "../servers/processes.ts";
import { temporaryFolder } from "../servers/reap.ts";
import type { NodeConfig } from "../servers/server-kind.ts";

const SOURCE = fileURLToPath(new URL("clock.c", import.meta.url));

const COMPILER = { binaries: ["cc", "gcc", "clang"], packages: ["gcc", "libc6-dev"] } as const;

let compiled: Promise<string> | undefined;

/** The folder of a process whose clock can be stepped. */
type Stepped = Pick<NodeConfig, "folder">;

/**
 * Returns the environment of a process whose wall clock can be stepped at run time.
 *
 * Needs Linux, a C compiler (installed if possible), and a process that reads the time through the C library, as Redis,
 * MySQL, PostgreSQL and Node do, and etcd does not.
 */
export async function steppableClock(
  onProgress: (step: string) => void = () => {},
): Promise<(process: Stepped) => NodeJS.ProcessEnv> {
  compiled ??= compile(onProgress);
  const library = await compiled;
  return (process) => ({ LD_PRELOAD: library, LOCKSTEP_CLOCK: offsetOf(process) });
}

/** Sets the clock of a process `ahead` milliseconds ahead of the real time, or behind it if negative. */
export async function stepClock(
  { config }: { readonly config: Stepped },
  ahead: Millis,
): Promise<void> {
  const nanos = BigInt(Math.round(ahead * 1e6));
  // In place: the process has mapped the file, and a truncation would unmap the page.
  await writeFile(offsetOf(config), new BigInt64Array([nanos]), { flag: "r+" });
}

function offsetOf({ folder }: Stepped): string {
  return join(folder, "clock");
}

async function compile(onProgress: (step: string) => void): Promise<string> {
  const compiler = process.platform === "linux" && (await findOrInstall(COMPILER, onProgress));
  if (!compiler) throw new NoClockError();
  const folder = await temporaryFolder("clock");
  // A server that runs as another user loads the library, too.
  await chmod(folder.path, 0o755);
  const library = join(folder.path, "clock.so");
  try {
    await run(compiler, ["-O2", "-Wall", "-shared", "-fPIC", "-o", library, SOURCE]);
  } catch (error) {
    throw new NoClockError({ cause: error });
  }
  return library;
}

class NoClockError extends Error {
  override readonly name = "NoClockError";

  constructor(options?: ErrorOptions) {
    super(
      "stepping a server's clock needs Linux, a C compiler and the headers of the C library " +
        `(Debian: apt-get install ${COMPILER.packages.join(" ")})`,
      options,
    );
  }
}
