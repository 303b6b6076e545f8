import { resolve } from "node:path";
import type { Journal } from "../../core/journal/journal.ts";
import type { Millis } from "../../core/lock/time.ts";
import type { Runtime, RuntimeOptions } from "../../core/steps/contract.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import { type App, createApp } from "../http/app.ts";
import type { FetchApp } from "../http/lambda.ts";
import type { AppOptions } from "../http/options.ts";
import { type HttpServer, type ServerOptions, serveHttp } from "../http/server.ts";
import { StepLog } from "../http/step-log.ts";
import { combineTelemetry, type Telemetry } from "../telemetry/telemetry.ts";
import { runWorker } from "../worker/worker.ts";
import { loadWorkflowModule, type WorkflowServices } from "../worker/workflow-module.ts";
import { FolderWatcher } from "./folder-watcher.ts";
import { ModuleReloader } from "./module-reloader.ts";

export interface DevOptions {
  /** The module with workflows. Without it the server serves stock only. */
  readonly file?: string | undefined;
  readonly services: WorkflowServices;
  readonly journal: Journal;
  readonly owner: string;
  readonly lease: Millis;
  readonly app: Omit<AppOptions, "runtime" | "workflows" | "stepLog" | "drain" | "abort">;
  readonly server: ServerOptions;
  readonly telemetry: Telemetry;

  /** Wraps the app. */
  readonly wrap?: ((app: FetchApp) => FetchApp) | undefined;

  /** Called when the module has been reloaded. */
  readonly onReload: (workflows: readonly AnyWorkflow[]) => void;

  /** Called when a reload fails, and the workflows stay; or when the worker fails, and only requests execute runs. */
  readonly onProblem: (error: unknown) => void;
}

/** The app and the worker of one version of the module. */
interface AppInstance {
  readonly app: App;
  readonly runtime: Runtime;

  /** Stops taking runs. Resolves when the worker has parked all of its runs. */
  end(): Promise<unknown>;
}

/** Serves the app for development, with a worker for sleeping runs, and reloads the module when its sources change. */
export class DevServer {
  readonly #options: DevOptions;
  readonly #drain = new AbortController();
  readonly #abort = new AbortController();
  readonly #reloader: ModuleReloader | undefined;
  readonly #watcher = new FolderWatcher(() => void this.#reload());
  readonly #ending = new Set<Promise<unknown>>();
  #instance: AppInstance;
  #loads = 0;
  #server: HttpServer | undefined;

  private constructor(options: DevOptions) {
    this.#options = options;
    this.#reloader =
      options.file === undefined ? undefined : new ModuleReloader(resolve(options.file));
    this.#instance = this.#createInstance([]);
  }

  /** Starts the server. Rejects when the module cannot be loaded or the port cannot be opened. */
  static async start(options: DevOptions): Promise<DevServer> {
    const dev = new DevServer(options);
    try {
      await dev.#load();
      const app = { fetch: (request: Request) => dev.#instance.app.fetch(request, {}) };
      const { wrap = (inner) => inner } = options;
      dev.#server = await serveHttp(wrap(app), options.server);
      return dev;
    } catch (error) {
      await dev.close(0);
      throw error;
    }
  }

  get url(): string {
    return this.#server?.url ?? "";
  }

  /** The runtime of the module's last version. */
  get runtime(): Runtime {
    return this.#instance.runtime;
  }

  /**
   * Shuts down gracefully: answers the active requests, parks the runs at their next step, and resolves when no lock is
   * held. After `grace` milliseconds, or a call of `abort`, aborts the remaining work.
   */
  async close(grace: Millis): Promise<void> {
    // Invalidates a load in progress.
    this.#loads += 1;
    this.#watcher[Symbol.dispose]();
    this.#drain.abort();
    const timer = setTimeout(() => this.abort(), grace);
    await this.#server?.close(grace);
    await this.#instance.end();
    await Promise.all(this.#ending);
    clearTimeout(timer);
    this.#reloader?.[Symbol.dispose]();
  }

  /** Aborts the running steps. */
  abort(): void {
    this.#abort.abort();
  }

  /** Undefined when a later load has started meanwhile, or the server is closed. */
  async #load(): Promise<readonly AnyWorkflow[] | undefined> {
    const { file, services } = this.#options;
    if (file === undefined || !this.#reloader) return [];
    this.#reloader.startGeneration();
    this.#loads += 1;
    const load = this.#loads;
    try {
      const program = await loadWorkflowModule(file);
      const { workflows, entities } = await program.create(services);
      if (load !== this.#loads) return undefined;
      this.#replace(this.#createInstance(workflows, { entities, codec: program.codec }));
      return workflows;
    } finally {
      this.#watcher.add(this.#reloader.folders);
    }
  }

  async #reload(): Promise<void> {
    const { onReload, onProblem } = this.#options;
    await this.#load().then((workflows) => workflows && onReload(workflows), onProblem);
  }

  /** The previous instance runs until its worker has parked its runs. */
  #replace(instance: AppInstance): void {
    const ended = this.#instance.end().finally(() => this.#ending.delete(ended));
    this.#ending.add(ended);
    this.#instance = instance;
  }

  #createInstance(
    workflows: readonly AnyWorkflow[],
    values: Pick<RuntimeOptions, "entities" | "codec"> = {},
  ): AppInstance {
    const { journal, owner, lease, services, app, telemetry, onProblem } = this.#options;
    const stepLog = new StepLog();
    const { locks } = services;
    const { runtime: listeners } = combineTelemetry({ runtime: stepLog }, telemetry);
    const runtime = createRuntime({
      ...{ journal, locks, workflows, owner, lease },
      ...values,
      ...listeners,
    });
    const stopping = new AbortController();
    const [drain, abort] = [this.#drain.signal, this.#abort.signal];
    const worker =
      workflows.length === 0
        ? Promise.resolve(undefined)
        : runWorker({ runtime, signal: stopping.signal, abort }).catch(onProblem);
    return {
      runtime,
      app: createApp({ ...app, runtime, workflows, stepLog, drain, abort }),
      end() {
        stopping.abort();
        return worker;
      },
    };
  }
}
