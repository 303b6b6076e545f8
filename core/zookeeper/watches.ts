import type { Path, Watch } from "./zookeeper.ts";

/** The watches of a session. Each is called once. */
export class Watches {
  readonly #watches = new Map<Path, Set<Watch>>();

  add(path: Path, watch: Watch): void {
    const watches = this.#watches.get(path) ?? new Set();
    this.#watches.set(path, watches.add(watch));
  }

  remove(path: Path, watch: Watch): void {
    const watches = this.#watches.get(path);
    if (watches?.delete(watch) && watches.size === 0) this.#watches.delete(path);
  }

  changed(path: Path): void {
    const watches = this.#watches.get(path) ?? [];
    this.#watches.delete(path);
    for (const watch of watches) watch();
  }

  /** What the old connection would have told, the new one does not. */
  lose(): void {
    for (const path of [...this.#watches.keys()]) this.changed(path);
  }
}
