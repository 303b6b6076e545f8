import { execFile } from "node:child_process";
import { cp } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { findOrThrow } from "../../infra/servers/binaries.ts";
import { temporaryFolder } from "../../infra/servers/reap.ts";

const run = promisify(execFile);

const SPIN = { binaries: ["spin"], packages: ["spin"] } as const;
const COMPILER = { binaries: ["gcc", "cc"], packages: ["gcc", "libc6-dev"] } as const;

/** The longest path of a model, in steps. A longer one is an error of the search. */
const DEEPEST = 1_000_000;

/** The largest state, in bytes: that of a replay has all calls under way. */
const LARGEST_STATE = 32_768;

/** The longest output of a search: a replay prints each event. */
const LONGEST_OUTPUT = 16_777_216;

export interface Model {
  /** The file's name without ".pml". */
  readonly name: string;

  /** Changes that break a property. Each is a symbol that the model reads. */
  readonly mutants: readonly string[];
}

/** The models of this folder. The head of each file says what it leaves out. */
export const MODELS: readonly Model[] = [
  { name: "fence", mutants: ["LOCK_ALONE", "CHECK_AT_WRITE"] },
  { name: "validity", mutants: ["FROM_ANSWER"] },
  { name: "withdrawal", mutants: ["WITHDRAW_ANY", "BELIEVE_UNKNOWN"] },
  { name: "redlock", mutants: ["NO_RAISE", "RAISE_ANY"] },
  { name: "journal", mutants: ["NO_EPOCH", "UNDO_AFTER_ATTEMPT", "NO_FENCE"] },
  { name: "stock", mutants: ["NO_OPERATION_ID", "EXPIRE_ANY"] },
  { name: "session-queue", mutants: ["NO_REREAD", "READ_THEN_WATCH"] },
];

export interface Search {
  /** The violated property in spin's words; undefined if the whole model holds. */
  readonly violation: string | undefined;

  /** The number of distinct states. */
  readonly states: number;

  /** The number of steps of the longest path. */
  readonly depth: number;
}

/** Searches all states of a model. Rejects when spin does not finish, or reports anything but a violation. */
export async function search(name: string, mutant?: string): Promise<Search> {
  await using folder = await temporaryFolder("spin");
  await cp(new URL(`${name}.pml`, import.meta.url), join(folder.path, "model.pml"));
  return toSearch(await explore(folder.path, mutant ? [mutant] : []));
}

/** Options of the compiler, and of the search. */
interface ExploreOptions {
  readonly compiled?: readonly string[];
  readonly searched?: readonly string[];
}

/** Searches all states of `model.pml` in the folder, up to the first error. Returns what the search prints. */
export async function explore(
  cwd: string,
  symbols: readonly string[],
  { compiled = [], searched = [] }: ExploreOptions = {},
): Promise<string> {
  const [spin, compiler] = [
    await findOrThrow(SPIN, () => {}),
    await findOrThrow(COMPILER, () => {}),
  ];
  await run(spin, ["-a", ...symbols.map((symbol) => `-D${symbol}`), "model.pml"], { cwd });
  // The compiler takes longer than the search: it does not optimize.
  await run(
    compiler,
    ["-DSAFETY", `-DVECTORSZ=${LARGEST_STATE}`, ...compiled, "-w", "-o", "pan", "pan.c"],
    { cwd },
  );
  const { stdout } = await run(join(cwd, "pan"), [`-m${DEEPEST}`, ...searched], {
    cwd,
    maxBuffer: LONGEST_OUTPUT,
  });
  return stdout;
}

export function toSearch(output: string): Search {
  const [, depth, errors] = /depth reached (\d+), errors: (\d+)/.exec(output) ?? [];
  const [, states] = /(\d+) states, stored/.exec(output) ?? [];
  if (!states || /max search depth too small|out of memory/.test(output)) throw new Error(output);
  const [, problem = "unknown"] = /^pan:1: (.*) \(at depth/m.exec(output) ?? [];
  return {
    violation: errors === "0" ? undefined : problem,
    states: Number(states),
    depth: Number(depth),
  };
}
