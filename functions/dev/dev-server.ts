import { resolve } from "node:path";
import type { Journal } from "../../core/journal/journal.ts";
import type { Millis } from "../../core/lock/time.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import { type App, createApp } from "../http/app.ts";
import type { Fetches } from "../http/lambda.ts";
import type { AppOptions } from "../http/options.ts";
import { type HttpServer, type ServerOptions, serveHttp } from "../http/server.ts";
import { Trail } from "../http/trail.ts";
import { type Telemetry, tellingToo } from "../telemetry/telemetry.ts";
import { loadProgram, type Services } from "../worker/program.ts";
import { runWorker } from "../worker/worker.ts";
import { Fresh } from "./fresh.ts";
import { Watch } from "./watch.ts";

export interface DevOptions {
  /** The module with workflows. Without it, there is only stock. */
  readonly file?: string | undefined;
  readonly services: Services;
  readonly journal: Journal;
  readonly owner: string;
  readonly lease: Millis;
  readonly app: Omit<AppOptions, "runtime" | "workflows" | "trail" | "drain" | "abort">;
  readonly server: ServerOptions;
  readonly telemetry: Telemetry;

  /** Puts something around each request. */
  readonly around?: ((app: Fetches) => Fetches) | undefined;

  /** The module was loaded again. */
  readonly onReload: (workflows: readonly AnyWorkflow[]) => void;

  /** It could not be, and the workflows stay as they are; or no runs are carried but those that are asked for. */
  readonly onProblem: (error: unknown) => void;
}

/** What carries the workflows as they are now. */
interface Live {
  readonly app: App;

  /** Takes up no more runs. Resolves when the worker has let go of all of them. */
  end(): Promise<unknown>;
}

/** The app over HTTP for development: with a worker for runs that sleep, and with the module as it is now. */
export class DevServer {
  readonly #options: DevOptions;
  readonly #drain = new AbortController();
  readonly #abort = new AbortController();
  readonly #fresh: Fresh | undefined;
  readonly #watch = new Watch(() => void this.#reload());
  readonly #ending = new Set<Promise<unknown>>();
  #live: Live;
  #loads = 0;
  #server: HttpServer | undefined;

  private constructor(options: DevOptions) {
    this.#options = options;
    this.#fresh = options.file === undefined ? undefined : new Fresh(resolve(options.file));
    this.#live = this.#bring([]);
  }

  /** Rejects as the module does when it is loaded, or when nobody can listen at the port. */
  static async start(options: DevOptions): Promise<DevServer> {
    const dev = new DevServer(options);
    try {
      await dev.#load();
      const now = { fetch: (request: Request) => dev.#live.app.fetch(request, {}) };
      const { around = (app) => app } = options;
      dev.#server = await serveHttp(around(now), options.server);
      return dev;
    } catch (error) {
      await dev.close(0);
      throw error;
    }
  }

  get url(): string {
    return this.#server?.url ?? "";
  }

  /**
   * Answers what is under way, parks the runs at their next step, and resolves when nothing is held any more; after
   * `grace` milliseconds, or once `now` was called, whatever is left is cut off.
   */
  async close(grace: Millis): Promise<void> {
    // What is still being loaded comes too late.
    this.#loads += 1;
    this.#watch[Symbol.dispose]();
    this.#drain.abort();
    const cut = setTimeout(() => this.now(), grace);
    await this.#server?.close(grace);
    await this.#live.end();
    await Promise.all(this.#ending);
    clearTimeout(cut);
    this.#fresh?.[Symbol.dispose]();
  }

  /** Aborts the steps that are under way. */
  now(): void {
    this.#abort.abort();
  }

  /** Undefined: a later one was begun meanwhile, or the server has ended. */
  async #load(): Promise<readonly AnyWorkflow[] | undefined> {
    const { file, services } = this.#options;
    if (file === undefined || !this.#fresh) return [];
    this.#fresh.renew();
    this.#loads += 1;
    const load = this.#loads;
    try {
      const program = await loadProgram(file);
      const workflows = await program.workflows(services);
      if (load !== this.#loads) return undefined;
      this.#replace(this.#bring(workflows));
      return workflows;
    } finally {
      this.#watch.add(this.#fresh.folders);
    }
  }

  async #reload(): Promise<void> {
    const { onReload, onProblem } = this.#options;
    await this.#load().then((workflows) => workflows && onReload(workflows), onProblem);
  }

  /** What was live goes on until its worker has let go of its runs. */
  #replace(live: Live): void {
    const ended = this.#live.end().finally(() => this.#ending.delete(ended));
    this.#ending.add(ended);
    this.#live = live;
  }

  #bring(workflows: readonly AnyWorkflow[]): Live {
    const { journal, owner, lease, services, app, telemetry, onProblem } = this.#options;
    const trail = new Trail();
    const { locks } = services;
    const given = { journal, locks, workflows, owner, lease };
    const runtime = createRuntime({ ...given, ...tellingToo(telemetry, trail.listen) });
    const stop = new AbortController();
    const [drain, abort] = [this.#drain.signal, this.#abort.signal];
    const worker =
      workflows.length === 0
        ? Promise.resolve(undefined)
        : runWorker({ runtime, signal: stop.signal, abort }).catch(onProblem);
    return {
      app: createApp({ ...app, runtime, workflows, trail, drain, abort }),
      end() {
        stop.abort();
        return worker;
      },
    };
  }
}
