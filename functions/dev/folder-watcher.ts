import { type FSWatcher, statSync, watch } from "node:fs";
import { dirname, join, sep } from "node:path";
import type { Millis } from "../../core/lock/time.ts";

/** The delay before `onChange`: an editor writes a file in several steps. */
const DEBOUNCE: Millis = 100;

/** Calls `onChange` after sources in the watched folders have changed. */
export class FolderWatcher implements Disposable {
  readonly #watched = new Map<string, { readonly watcher: FSWatcher; readonly id: string }>();
  readonly #onChange: () => void;
  #debounce: NodeJS.Timeout | undefined;

  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /**
   * Watches these folders. A folder that was removed and created again is watched anew. For a missing folder, the
   * nearest existing parent is watched until the folder is created.
   */
  add(folders: Iterable<string>): void {
    for (const folder of folders) {
      const { path, id } = nearestFolder(folder);
      if (this.#watched.get(folder)?.id === id) continue;
      this.#watched.get(folder)?.watcher.close();
      const watcher = watch(path, (_, name) => this.#changed(path, name));
      // The watcher of a removed folder fails.
      watcher.on("error", () => watcher.close());
      this.#watched.set(folder, { watcher, id });
    }
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#debounce);
    for (const { watcher } of this.#watched.values()) watcher.close();
  }

  #changed(folder: string, name: string | null): void {
    if (name !== null && !isSource(name) && !this.#isWatchedParent(join(folder, name))) return;
    clearTimeout(this.#debounce);
    this.#debounce = setTimeout(this.#onChange, DEBOUNCE);
  }

  /** Tells whether the path is a watched folder or a parent of one. */
  #isWatchedParent(path: string): boolean {
    return [...this.#watched.keys()].some((folder) =>
      join(folder, sep).startsWith(join(path, sep)),
    );
  }
}

function isSource(name: string): boolean {
  return /\.([cm]?[jt]s|json)$/.test(name);
}

/** Returns the folder or its nearest existing parent, with an id that a folder at the same path later does not have. */
function nearestFolder(path: string): { readonly path: string; readonly id: string } {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  // The inode number of a removed folder is reused.
  return stats
    ? { path, id: `${path} ${stats.ino} ${stats.birthtimeNs}` }
    : nearestFolder(dirname(path));
}
