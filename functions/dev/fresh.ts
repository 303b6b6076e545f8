import { registerHooks } from "node:module";
import { dirname } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** Carries the generation of a module in its URL: another URL is another module. */
const GENERATION = "lockstep-generation";

/** This package: two copies of it would not know each other's fences. */
const OURS = ["core/", "infra/", "functions/"].map((room) =>
  new URL(`../../${room}`, import.meta.url).href.toString(),
);

/**
 * Loads a module and all that it imports of the same project anew, each time.
 *
 * What is installed (`node_modules`) is loaded once. Every generation stays in memory: this is for development.
 */
export class Fresh implements Disposable {
  readonly #entry: string;
  readonly #folders = new Set<string>();
  readonly #hooks: ReturnType<typeof registerHooks>;
  #generation = 0;

  constructor(file: string) {
    this.#entry = pathToFileURL(file).href;
    this.#folders.add(dirname(file));
    this.#hooks = registerHooks({
      resolve: (specifier, context, next) => {
        const resolved = next(specifier, context);
        const generation = this.#generationOf(resolved.url, context.parentURL);
        if (generation === undefined || !isModule(resolved.format)) return resolved;
        const url = new URL(resolved.url);
        this.#folders.add(dirname(fileURLToPath(url)));
        url.searchParams.set(GENERATION, generation);
        return { ...resolved, url: url.href };
      },
    });
  }

  /** The folders that the modules come from. */
  get folders(): ReadonlySet<string> {
    return this.#folders;
  }

  /** From now on the module is another one. */
  renew(): void {
    this.#generation += 1;
  }

  [Symbol.dispose](): void {
    this.#hooks.deregister();
  }

  /** That of whoever imports it: what an old generation imports late stays with it. */
  #generationOf(url: string, parent: string | undefined): string | undefined {
    if (url === this.#entry) return String(this.#generation);
    const isInstalled = !url.startsWith("file:") || url.includes("/node_modules/");
    if (isInstalled || OURS.some((room) => url.startsWith(room))) return undefined;
    return URL.parse(parent ?? "")?.searchParams.get(GENERATION) ?? undefined;
  }
}

/** CommonJS keeps modules by their path, which has no query. Undefined: Node finds out when it has read it. */
function isModule(format: string | null | undefined): boolean {
  return format !== "commonjs" && format !== "builtin";
}
