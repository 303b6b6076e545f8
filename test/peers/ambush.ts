/** Where a process can be met: after its read, right before its write, before its effect, after its effect. */
export type Point = "read" | "check" | "begin" | "effect";

interface AmbushOptions {
  readonly at: Point;

  /** How long the process works afterwards, in milliseconds. */
  readonly work: number;

  /** How many processes pass before. */
  readonly spare?: number;
  begin(pid: number): void;
}

interface Waiting extends AmbushOptions {
  spared: number;
  resolve(met: Met): void;
}

export interface Met {
  readonly pid: number;

  /** The holder or the operation. */
  readonly what: string;
}

/** Begins a fault when a process tells the resource that it has reached a point, before the process is answered. */
export class Ambush {
  #waiting: Waiting | undefined;

  lay(options: AmbushOptions): Promise<Met> {
    return new Promise((resolve) => {
      this.#waiting = { ...options, spared: 0, resolve };
    });
  }

  /** Returns the options of the fault that has begun here. */
  reach(at: Point, met: Met): AmbushOptions | undefined {
    const waiting = this.#waiting;
    if (waiting?.at !== at) return undefined;
    if (waiting.spared < (waiting.spare ?? 0)) {
      waiting.spared += 1;
      return undefined;
    }
    this.#waiting = undefined;
    waiting.begin(met.pid);
    waiting.resolve(met);
    return waiting;
  }
}
