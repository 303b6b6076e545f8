import type { CommandModule } from "yargs";
import { sleep } from "../../../core/lock/abort.ts";
import type { LockInfo } from "../../../core/lock/lock.ts";
import type { Millis } from "../../../core/lock/time.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { type StoreArgs, storeOption } from "../options.ts";
import { onSignal } from "../process/signals.ts";
import { withStoreToRead } from "../store.ts";
import { shortFence, truncate } from "../terminal/draw-timeline.ts";
import { formatDuration } from "../terminal/duration.ts";
import { print } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";
import { workOf } from "./inspect.ts";

/** The pause between two reads of the store. */
const EVERY: Millis = 1_000;

/** The most locks, and the most runs of each status. */
const MOST_ROWS = 20;

/** The longest command of a holder, in columns. */
const WORK_WIDTH = 30;

export const topCommand: CommandModule<unknown, StoreArgs> = {
  command: "top",
  describe: "Watch locks and open runs; in a pipe, print them once",
  builder: (yargs) => storeOption(yargs).example("$0 top", "until Ctrl-C"),
  handler: (args) =>
    withStoreToRead(args, async (opened) => {
      const over = new AbortController();
      using _listening = onSignal(() => over.abort());
      if (!process.stdout.isTTY) return print(await draw(opened));
      while (!over.signal.aborted) {
        const shown = await draw(opened);
        const lines = shown.split("\n").map((line) => truncate(line, process.stdout.columns));
        print(`\x1b[H\x1b[2J${new Date().toISOString()}\n${lines.join("\n")}`);
        await sleep(EVERY, over.signal).catch(() => {});
      }
    }),
};

async function draw(opened: AnyStore): Promise<string> {
  const locks = drawLocks(await opened.locks.list());
  return opened.has("journal") ? `${locks}\n${await drawRuns(opened)}` : locks;
}

function drawLocks(locks: readonly LockInfo[]): string {
  const rows = locks
    .slice(0, MOST_ROWS)
    .map(({ name, holder = "", about, expiresIn, fence = "", waiters }) => [
      name,
      processOf(holder),
      truncate(workOf(about), WORK_WIDTH),
      about?.since === undefined ? "" : ago(about.since),
      expiresIn === undefined ? "" : formatDuration(expiresIn),
      shortFence(fence),
      waiters,
    ]);
  const head = ["lock", "holder", "for", "held for", "expires in", "fence", "waiters"];
  const more = locks.length > MOST_ROWS ? `\n${MOST_ROWS} of ${locks.length} locks` : "";
  return table(head, rows) + more;
}

/** The part of an owner's id before its random part: the host and the process, or the label. */
function processOf(id: string): string {
  return id.split("/", 1).join();
}

function ago(since: Date): string {
  return formatDuration(Math.max(0, Date.now() - since.getTime()));
}

async function drawRuns({ journal }: AnyStore): Promise<string> {
  const open = ["running", "parked", "blocked"] as const;
  const runs = await Promise.all(open.map((status) => journal.list({ status, limit: MOST_ROWS })));
  const rows = runs
    .flat()
    .map(({ runId, workflow, status, waitsFor, reason, startedAt, owner }) => [
      runId,
      workflow,
      status,
      waitsFor === undefined ? (reason ?? "") : `lock ${waitsFor}`,
      ago(startedAt),
      processOf(owner),
    ]);
  return table(["run", "workflow", "status", "waits for", "age", "last executed by"], rows);
}
