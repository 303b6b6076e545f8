import { type ChildProcess, fork } from "node:child_process";
import { extname } from "node:path";
import type {
  CriticalSection,
  Delivery,
  FromWorker,
  OrderAnswer,
  ToWorker,
  WorkerConfig,
} from "./messages.ts";

/** The result of a delivery. `killed`: the process died while it handled the order. */
export interface Handled {
  readonly answer: OrderAnswer | "killed";
  readonly section: CriticalSection | undefined;
}

const SCRIPT = new URL(`./worker${extname(import.meta.url)}`, import.meta.url);

/** A worker process that handles one order at a time. It is continued after a freeze and replaced after a kill. */
export class WorkerProcess {
  #child: ChildProcess | undefined;
  #config: WorkerConfig | undefined;

  async configure(config: WorkerConfig): Promise<void> {
    this.#config = config;
    this.#child ??= fork(SCRIPT, { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    await this.#request({ type: "configure", config });
  }

  /** Delivers an order. A process that freezes is continued when the result of `onFreeze` resolves. */
  async handle(delivery: Delivery, onFreeze: () => Promise<unknown>): Promise<Handled> {
    const last = await this.#request({ type: "deliver", delivery }, onFreeze);
    if (last.type === "answer") return last;
    if (last.type !== "dying" || !this.#config)
      throw new Error(`unexpected message of a worker: ${last.type}`);
    this.#child = undefined;
    await this.configure(this.#config);
    return { answer: "killed", section: last.section };
  }

  stop(): void {
    this.#child?.kill("SIGKILL");
    this.#child = undefined;
  }

  /** Sends a message. Resolves to the process's last message before it is ready again, or dead. */
  #request(message: ToWorker, onFreeze?: () => Promise<unknown>): Promise<FromWorker> {
    const child = this.#child;
    if (!child) throw new Error("the worker is not configured");
    return new Promise((resolve, reject) => {
      let last: FromWorker | undefined;
      const onMessage = (received: FromWorker) => {
        last = received;
        if (received.type === "freezing") onFreeze?.().finally(() => child.kill("SIGCONT"));
        else if (received.type === "error") finish(() => reject(new Error(received.message)));
        else if (received.type !== "dying") finish(() => resolve(received));
      };
      const onExit = (code: number | null, signal: string | null) =>
        finish(() =>
          last?.type === "dying"
            ? resolve(last)
            : reject(new Error(`a worker ended with ${signal ?? code}`)),
        );
      const finish = (settle: () => void) => {
        child.off("message", onMessage).off("exit", onExit);
        settle();
      };
      child.on("message", onMessage).on("exit", onExit);
      child.send(message);
    });
  }
}
