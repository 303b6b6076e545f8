import { type FSWatcher, statSync, watch } from "node:fs";
import { dirname, join, sep } from "node:path";
import type { Millis } from "../../core/lock/time.ts";

/** An editor writes a file in several steps. */
const SETTLED: Millis = 100;

/** Calls `onChange` once sources in these folders have changed. */
export class Watch implements Disposable {
  readonly #watched = new Map<string, { readonly watcher: FSWatcher; readonly id: string }>();
  readonly #onChange: () => void;
  #settling: NodeJS.Timeout | undefined;

  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /**
   * Watches these folders too, and those again that are others by now: a folder that was removed and made again is not
   * the one that was watched. Of a folder that is not there, the nearest one above it tells when it comes back.
   */
  add(folders: Iterable<string>): void {
    for (const folder of folders) {
      const { path, id } = nearest(folder);
      if (this.#watched.get(folder)?.id === id) continue;
      this.#watched.get(folder)?.watcher.close();
      const watcher = watch(path, (_, name) => this.#changed(path, name));
      // A folder that is gone has nothing more to tell.
      watcher.on("error", () => watcher.close());
      this.#watched.set(folder, { watcher, id });
    }
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#settling);
    for (const { watcher } of this.#watched.values()) watcher.close();
  }

  #changed(folder: string, name: string | null): void {
    if (name !== null && !isSource(name) && !this.#isAwaited(join(folder, name))) return;
    clearTimeout(this.#settling);
    this.#settling = setTimeout(this.#onChange, SETTLED);
  }

  /** Whether a watched folder is this one or below it. */
  #isAwaited(path: string): boolean {
    return [...this.#watched.keys()].some((folder) =>
      join(folder, sep).startsWith(join(path, sep)),
    );
  }
}

function isSource(name: string): boolean {
  return /\.([cm]?[jt]s|json)$/.test(name);
}

/** The folder, or the first one above it that is there, and what tells it from others at the same path. */
function nearest(path: string): { readonly path: string; readonly id: string } {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  // The number of a folder that is gone is given to the next one.
  return stats ? { path, id: `${path} ${stats.ino} ${stats.birthtimeNs}` } : nearest(dirname(path));
}
