import { registerHooks } from "node:module";
import { dirname } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** The query parameter for the generation of a module. Node loads a module again under another URL. */
const GENERATION = "lockstep-generation";

/** The modules of this package are loaded once: two copies would not accept each other's fences. */
const OWN_ROOMS = ["core/", "infra/", "functions/"].map((room) =>
  new URL(`../../${room}`, import.meta.url).href.toString(),
);

/**
 * Reloads a module and its imports from the same project.
 *
 * Installed packages (`node_modules`) are loaded once. Every generation stays in memory, so use it for development only.
 */
export class ModuleReloader implements Disposable {
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

  /** The folders of the loaded modules. */
  get folders(): ReadonlySet<string> {
    return this.#folders;
  }

  /** The next import of the module loads it again. */
  startGeneration(): void {
    this.#generation += 1;
  }

  [Symbol.dispose](): void {
    this.#hooks.deregister();
  }

  /** Returns the generation of the importer: a late import of an old generation belongs to the old generation. */
  #generationOf(url: string, parent: string | undefined): string | undefined {
    if (url === this.#entry) return String(this.#generation);
    const isInstalled = !url.startsWith("file:") || url.includes("/node_modules/");
    if (isInstalled || OWN_ROOMS.some((room) => url.startsWith(room))) return undefined;
    return URL.parse(parent ?? "")?.searchParams.get(GENERATION) ?? undefined;
  }
}

/** CommonJS caches modules by their path, without a query. The format is undefined until Node has read the file. */
function isModule(format: string | null | undefined): boolean {
  return format !== "commonjs" && format !== "builtin";
}
