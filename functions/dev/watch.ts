import { watch } from "node:fs";
import type { Millis } from "../../core/lock/time.ts";

/** An editor writes a file in several steps. */
const SETTLED: Millis = 100;

/** Calls `onChange` once sources in these folders have changed. */
export class Watch implements Disposable {
  readonly #watchers = new Map<string, ReturnType<typeof watch>>();
  readonly #onChange: () => void;
  #settling: NodeJS.Timeout | undefined;

  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /** Watches these folders too. */
  add(folders: Iterable<string>): void {
    for (const folder of folders) {
      if (this.#watchers.has(folder)) continue;
      const watcher = watch(folder, (_, name) => this.#changed(name));
      // A folder that is gone has nothing more to tell.
      watcher.on("error", () => watcher.close());
      this.#watchers.set(folder, watcher);
    }
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#settling);
    for (const watcher of this.#watchers.values()) watcher.close();
  }

  #changed(name: string | null): void {
    if (name !== null && !/\.([cm]?[jt]s|json)$/.test(name)) return;
    clearTimeout(this.#settling);
    this.#settling = setTimeout(this.#onChange, SETTLED);
  }
}
