import { fileURLToPath } from "node:url";
import { LONG_HISTORIES, recordHistory } from "../../support/long-histories.ts";
import { runNode } from "../../support/script.ts";
import { temporaryFile } from "../../support/under-test.ts";

const SCRIPT = fileURLToPath(new URL("../../scripts/replay-history.ts", import.meta.url));

/** Limits of `measureReplays`, in milliseconds and in megabytes of the whole process. */
export const REPLAY_LIMITS: Readonly<Record<string, number>> = {
  "replay of many-steps, ms": 1_000,
  "replay of many-steps, MB": 150,
  "replay of large-results, MB": 150,
};

/** Replays long histories on SQLite: 10,000 steps, and 200 steps with results of 1 MB. */
export async function measureReplays(
  onProgress: (step: string) => void,
): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const recorded of LONG_HISTORIES) {
    const { name } = recorded;
    onProgress(`replay of ${name}`);
    const { file, remove } = await temporaryFile();
    await recordHistory(recorded, file);
    using replaying = runNode([SCRIPT, file, name]);
    const { millis, megabytes } = JSON.parse(await replaying.line());
    counts[`replay of ${name}, ms`] = millis;
    counts[`replay of ${name}, MB`] = megabytes;
    await replaying.ended;
    await remove();
  }
  return counts;
}
