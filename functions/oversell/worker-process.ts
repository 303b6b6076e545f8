import { type ChildProcess, fork } from "node:child_process";
import { extname } from "node:path";
import { forget, reap } from "../../infra/servers/reap.ts";
import type {
  Delivery,
  FromWorker,
  HandledOrder,
  ToWorker,
  Worker,
  WorkerConfig,
} from "./messages.ts";

const SCRIPT = new URL(`./worker${extname(import.meta.url)}`, import.meta.url);

/** A worker process that handles one order at a time. It is continued after a freeze and replaced after a kill. */
export class WorkerProcess implements Worker {
  #child: ChildProcess | undefined;
  #config: WorkerConfig | undefined;

  async configure(config: WorkerConfig): Promise<void> {
    this.#config = config;
    this.#child ??= startWorker();
    await this.#request({ type: "configure", config });
  }

  /** Delivers an order. A process that freezes is continued when the result of `onFreeze` resolves. */
  async handle(
    delivery: Delivery,
    startedAt: number,
    onFreeze: () => Promise<unknown>,
  ): Promise<HandledOrder> {
    const last = await this.#request({ type: "deliver", delivery, startedAt }, onFreeze);
    if (last.type === "answer") return last.handled;
    if (last.type !== "dying" || !this.#config)
      throw new Error(`unexpected message of a worker: ${last.type}`);
    this.#child = undefined;
    await this.configure(this.#config);
    return last.handled;
  }

  stop(): void {
    this.#child?.kill("SIGKILL");
    this.#child = undefined;
  }

  /** Sends a message. Resolves to the process's last message before it is ready again, or dead. */
  #request(message: ToWorker, onFreeze?: () => Promise<unknown>): Promise<FromWorker> {
    const child = this.#child;
    if (!child) throw new Error("the worker got an order before its settings");
    return new Promise((resolve, reject) => {
      let last: FromWorker | undefined;
      const onMessage = (received: FromWorker) => {
        last = received;
        if (received.type === "freezing") freeze();
        else if (received.type === "error") finish(() => reject(new Error(received.message)));
        else if (received.type !== "dying") finish(() => resolve(received));
      };
      // The function that stops the process also continues it: a second stop could come after the continuation.
      const freeze = () => {
        child.kill("SIGSTOP");
        child.send({ type: "wake" } satisfies ToWorker);
        onFreeze?.().finally(() => child.kill("SIGCONT"));
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

/** Starts a worker that ends with this process in every case: a frozen one does not notice the end of its parent. */
function startWorker(): ChildProcess {
  const child = fork(SCRIPT, { stdio: ["ignore", "ignore", "inherit", "ipc"] });
  const { pid } = child;
  if (pid !== undefined) {
    reap(pid);
    child.once("exit", () => forget(pid));
  }
  return child;
}
