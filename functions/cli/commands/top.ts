import type { CommandModule } from "yargs";
import { sleep } from "../../../core/lock/abort.ts";
import type { Millis } from "../../../core/lock/time.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { type StoreArgs, storeOption } from "../options.ts";
import { onSignal } from "../process/signals.ts";
import { withStoreToRead } from "../store.ts";
import { print } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";
import { locksTable } from "./inspect.ts";

/** The pause between two reads of the store. */
const EVERY: Millis = 1_000;

const MOST_RUNS = 20;

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
        print(`\x1b[H\x1b[2J${new Date().toISOString()}\n${shown}`);
        await sleep(EVERY, over.signal).catch(() => {});
      }
    }),
};

async function draw(opened: AnyStore): Promise<string> {
  const locks = locksTable(await opened.locks.list());
  return opened.has("journal") ? `${locks}\n${await drawRuns(opened)}` : locks;
}

async function drawRuns({ journal }: AnyStore): Promise<string> {
  const open = ["running", "parked", "blocked"] as const;
  const runs = await Promise.all(open.map((status) => journal.list({ status, limit: MOST_RUNS })));
  const rows = runs
    .flat()
    .map(({ runId, workflow, status, waitsFor, reason, startedAt, owner }) => [
      runId,
      workflow,
      status,
      waitsFor === undefined ? (reason ?? "") : `lock ${waitsFor}`,
      startedAt.toISOString(),
      owner,
    ]);
  return table(["run", "workflow", "status", "waits for", "started", "last executed by"], rows);
}
