import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, readdir, symlink } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { temporaryFolder } from "../../infra/servers/reap.ts";
import { fileOf, ROOT, type TestedMutant } from "./mutant.ts";
import type { Verdict } from "./worker.ts";

/** A mutant of a room of the catalogue. */
export interface Quarry {
  readonly room: string;
  readonly mutant: TestedMutant;
}

export interface Trial extends Omit<Verdict, "outcome"> {
  readonly room: string;
  readonly name: string;

  /** A mutant whose tests do not end counts as caught. */
  readonly outcome: Verdict["outcome"] | "timed out";
  readonly seconds: number;
}

/** The longest time for the tests of one mutant, in milliseconds: longer than any of them take on a busy machine. */
const LIMIT = 120_000;

/** How long the servers of the tests may take to stop, in milliseconds. */
const CLOSING = 30_000;

/** Tries the mutants against their tests, some at a time, each in a copy of the project. */
export async function hunt(
  quarries: readonly Quarry[],
  workers: number,
  onTrial: (trial: Trial) => void,
): Promise<void> {
  const left = [...quarries];
  const work = async () => {
    await using copy = await copyOfProject();
    await using hunter = new Hunter(copy.path);
    for (let next = left.shift(); next; next = left.shift()) {
      onTrial(await hunter.try(next));
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
}

/** Copies the project without what is built or installed. The packages are linked, without their caches. */
async function copyOfProject() {
  const folder = await temporaryFolder("mutants");
  const left = ["node_modules", ".git", "dist", "build"];
  const filter = (source: string) => !left.includes(basename(source));
  await cp(ROOT, folder.path, { recursive: true, filter });
  const packages = fileURLToPath(new URL("node_modules", ROOT));
  await mkdir(join(folder.path, "node_modules"));
  for (const name of await readdir(packages)) {
    if (name === ".vite" || name === ".cache") continue;
    await symlink(join(packages, name), join(folder.path, "node_modules", name));
  }
  return folder;
}

/** A process that tries mutants in a copy of the project. It is replaced when the tests of one do not end. */
class Hunter implements AsyncDisposable {
  readonly #folder: string;
  #process: ChildProcess | undefined;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async try({ room, mutant }: Quarry): Promise<Trial> {
    const startedAt = performance.now();
    const verdict = await this.#verdictOn(mutant);
    const seconds = Math.round((performance.now() - startedAt) / 100) / 10;
    return { room, name: mutant.name, ...verdict, seconds };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null) return;
    const exited = once(child, "exit");
    child.disconnect();
    const late = setTimeout(() => killGroup(child), CLOSING);
    await exited;
    clearTimeout(late);
  }

  async #verdictOn(mutant: TestedMutant): Promise<Pick<Trial, "outcome" | "by">> {
    this.#process ??= this.#start();
    const child = this.#process;
    const { promise, resolve } = Promise.withResolvers<Pick<Trial, "outcome" | "by">>();
    const late = setTimeout(() => resolve({ outcome: "timed out", by: undefined }), LIMIT);
    const onExit = () => resolve({ outcome: "broken", by: "the process of the tests has ended" });
    child.once("message", resolve);
    child.once("exit", onExit);
    child.send(mutant);
    const verdict = await promise;
    clearTimeout(late);
    child.off("message", resolve);
    child.off("exit", onExit);
    if (verdict.outcome === "timed out") killGroup(child);
    if (child.killed || child.exitCode !== null) {
      this.#process = undefined;
      await cp(fileOf(mutant), join(this.#folder, mutant.file));
    }
    return verdict;
  }

  #start(): ChildProcess {
    return fork(join(this.#folder, "test/mutants/worker.ts"), {
      cwd: this.#folder,
      // A mutant may name any test.
      env: { ...process.env, LOCKSTEP_TESTS: "all" },
      stdio: ["ignore", "ignore", "ignore", "ipc"],
      // Its tests and servers are of its group, and end with it.
      detached: true,
    });
  }
}

function killGroup(child: ChildProcess): void {
  child.kill("SIGKILL");
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // All of them have ended.
  }
}
