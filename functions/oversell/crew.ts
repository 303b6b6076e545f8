import { type ChildProcess, fork } from "node:child_process";
import { extname } from "node:path";
import type { Answer, Delivery, FromWorker, Section, Shift, ToWorker } from "./messages.ts";

/** What came of a delivery. `killed`: the process died over it. */
export interface Handled {
  readonly answer: Answer | "killed";
  readonly section: Section | undefined;
}

const SCRIPT = new URL(`./worker${extname(import.meta.url)}`, import.meta.url);

/** One real process that handles one order at a time, is woken when it is frozen, and replaced when it is killed. */
export class Worker {
  #child: ChildProcess | undefined;
  #shift: Shift | undefined;

  async begin(shift: Shift): Promise<void> {
    this.#shift = shift;
    this.#child ??= fork(SCRIPT, { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    await this.#exchange({ type: "shift", shift });
  }

  async handle(delivery: Delivery): Promise<Handled> {
    const last = await this.#exchange({ type: "deliver", delivery });
    if (last.type === "answer") return last;
    if (last.type !== "dying" || !this.#shift) throw new Error(`a worker said ${last.type}`);
    this.#child = undefined;
    await this.begin(this.#shift);
    return { answer: "killed", section: last.section };
  }

  stop(): void {
    this.#child?.kill("SIGKILL");
    this.#child = undefined;
  }

  /** Sends, and resolves to what the process says last before it is ready for more, or dead. */
  #exchange(message: ToWorker): Promise<FromWorker> {
    const child = this.#child;
    if (!child) throw new Error("the worker has not begun");
    return new Promise((resolve, reject) => {
      let last: FromWorker | undefined;
      const onMessage = (said: FromWorker) => {
        last = said;
        if (said.type === "freezing") this.#wake(child);
        else if (said.type === "error") finish(() => reject(new Error(said.message)));
        else if (said.type !== "dying") finish(() => resolve(said));
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

  #wake(child: ChildProcess): void {
    setTimeout(() => child.kill("SIGCONT"), this.#shift?.pauseMillis);
  }
}
