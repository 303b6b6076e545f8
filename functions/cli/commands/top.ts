import type { CommandModule } from "yargs";
import { sleep } from "../../../core/lock/abort.ts";
import { hasCode } from "../../../core/lock/errors.ts";
import type { LockInfo, LockStore } from "../../../core/lock/lock.ts";
import type { Millis } from "../../../core/lock/time.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { formatDuration } from "../../display/format-duration.ts";
import { locksOption, type StoreArgs, storeOption } from "../options.ts";
import { onSignal } from "../process/signals.ts";
import { withLocks, withStoreToRead } from "../store.ts";
import { shortFence, truncate } from "../terminal/draw-timeline.ts";
import { print } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";
import { workOf } from "./inspect.ts";

/** The pause between two reads of the store. */
const EVERY: Millis = 1_000;

/** The most locks, and the most runs of each status, as far as the terminal has lines for them. */
const MOST_ROWS = 20;

/** The lines of a terminal that hold neither locks nor runs: time, heads and counts. */
const OTHER_LINES = 6;

/** The longest name of a lock or a run, and the longest command of a holder, in columns. */
const NAME_WIDTH = 40;
const WORK_WIDTH = 30;

interface TopArgs extends StoreArgs {
  readonly locks: string | undefined;
}

export const topCommand: CommandModule<unknown, TopArgs> = {
  command: "top",
  describe: "Watch locks and open runs; in a pipe, print them once",
  builder: (yargs) =>
    locksOption(storeOption(yargs), "the store of the locks").example("$0 top", "until Ctrl-C"),
  handler: (args) =>
    withLocks(
      args.locks,
      (others) => withStoreToRead(args, (opened) => watch(opened, (others ?? opened).locks)),
      { create: false },
    ),
};

async function watch(opened: AnyStore, locks: LockStore): Promise<void> {
  const over = new AbortController();
  using _listening = onSignal(() => over.abort());
  if (!process.stdout.isTTY) return print(await draw(opened, locks));
  while (!over.signal.aborted) {
    const shown = await draw(opened, locks, process.stdout.rows).catch(outage);
    const lines = shown.split("\n").map((line) => truncate(line, process.stdout.columns));
    print(`\x1b[H\x1b[2J${new Date().toISOString()}\n${lines.join("\n")}`);
    await sleep(EVERY, over.signal).catch(() => {});
  }
}

/** The watch goes on: the store may answer again. */
function outage(error: unknown): string {
  if (!hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) throw error;
  return (error as Error).message;
}

/** Draws both tables, each in half of the lines. */
async function draw(
  opened: AnyStore,
  store: LockStore,
  lines = Number.POSITIVE_INFINITY,
): Promise<string> {
  const rows = Math.max(1, Math.floor((lines - OTHER_LINES) / 2));
  const locks = drawLocks(await store.list(), Math.min(MOST_ROWS, rows));
  return opened.has("journal") ? `${locks}\n${await drawRuns(opened, rows)}` : locks;
}

function drawLocks(locks: readonly LockInfo[], most: number): string {
  const rows = locks
    .slice(0, most)
    .map(({ name, holder = "", about, expiresIn, fence = "", waiters }) => [
      truncate(name, NAME_WIDTH),
      processOf(holder),
      truncate(workOf(about), WORK_WIDTH),
      about?.since === undefined ? "" : ago(about.since),
      expiresIn === undefined ? "" : formatDuration(expiresIn),
      shortFence(fence),
      waiters,
    ]);
  const head = ["lock", "holder", "for", "held for", "expires in", "fence", "waiters"];
  const more = locks.length > most ? `\n${most} of ${locks.length} locks` : "";
  return rows.length === 0 ? "no locks" : table(head, rows) + more;
}

/** The part of an owner's id before its random part: the host and the process, or the label. */
function processOf(id: string): string {
  return id.split("/", 1).join();
}

function ago(since: Date): string {
  return formatDuration(Math.max(0, Date.now() - since.getTime()));
}

async function drawRuns({ journal }: AnyStore, most: number): Promise<string> {
  const open = ["running", "parked", "blocked"] as const;
  const runs = await Promise.all(open.map((status) => journal.list({ status, limit: MOST_ROWS })));
  // The runs that are executed come first.
  const shown = runs.flat().slice(0, most);
  const rows = shown.map(({ runId, workflow, status, waitsFor, reason, startedAt, owner }) => [
    truncate(runId, NAME_WIDTH),
    workflow,
    status,
    waitsFor === undefined ? (reason ?? "") : `lock ${waitsFor}`,
    ago(startedAt),
    processOf(owner),
  ]);
  const head = ["run", "workflow", "status", "waits for", "age", "last executed by"];
  return rows.length === 0 ? "no open runs" : table(head, rows);
}
