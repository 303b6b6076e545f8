import { readFile, writeFile } from "node:fs/promises";
import type { LockStore } from "../../core/lock/lock.ts";

export interface Contention {
  readonly name: string;
  readonly file: string;
  readonly contenders: number;
  readonly rounds: number;
}

/** Increments a number in a file under the lock: an overlap of two holders loses an update. */
export async function contend(
  store: LockStore,
  { name, file, contenders, rounds }: Contention,
): Promise<void> {
  const contender = async () => {
    for (let round = 0; round < rounds; round += 1) {
      const lock = await store.lock(name, { ttl: 10_000, wait: 200_000 });
      const count = Number(await readFile(file, "utf8"));
      await writeFile(file, String(count + 1));
      await lock.unlock();
    }
  };
  await Promise.all(Array.from({ length: contenders }, contender));
}
