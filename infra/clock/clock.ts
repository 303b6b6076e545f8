import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Millis } from "../../core/lock/time.ts";
import { findOrInstall } from "../servers/binaries.ts";
import type { Place } from "../servers/kinds.ts";
import { run, type ServerNode } from "../servers/node.ts";
import { reap } from "../servers/reap.ts";

const SOURCE = fileURLToPath(new URL("clock.c", import.meta.url));

const COMPILER = { binaries: ["cc", "gcc", "clang"], packages: ["gcc", "libc6-dev"] } as const;

let compiled: Promise<string> | undefined;

/**
 * The environment of a server process whose wall clock can be stepped while it runs.
 *
 * It needs Linux, a C compiler (which is installed where servers are), and a server that asks the C library for the
 * time, as Redis and MySQL do and etcd does not.
 */
export async function steppableClock(
  onProgress: (step: string) => void = () => {},
): Promise<(place: Place) => NodeJS.ProcessEnv> {
  compiled ??= compile(onProgress);
  const library = await compiled;
  return (place) => ({ LD_PRELOAD: library, LOCKSTEP_CLOCK: offsetOf(place) });
}

/** From now on the server's clock is so many milliseconds ahead, or behind. */
export async function stepClock({ place }: ServerNode, ahead: Millis): Promise<void> {
  const nanos = BigInt(Math.round(ahead * 1e6));
  // In place: the server has the file mapped, and truncating it would take the page away.
  await writeFile(offsetOf(place), new BigInt64Array([nanos]), { flag: "r+" });
}

function offsetOf({ folder }: Place): string {
  return join(folder, "clock");
}

async function compile(onProgress: (step: string) => void): Promise<string> {
  const compiler = process.platform === "linux" && (await findOrInstall(COMPILER, onProgress));
  if (!compiler) throw new NoClockError();
  const folder = await mkdtemp(join(tmpdir(), "lockstep-clock-"));
  reap(folder);
  const library = join(folder, "clock.so");
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
      "to step a server's clock takes Linux, a C compiler and the headers of the C library " +
        `(Debian: apt-get install ${COMPILER.packages.join(" ")})`,
      options,
    );
  }
}
