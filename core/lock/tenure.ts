import { link } from "./abort.ts";

/** A place in line that may be lost. */
interface Guarded {
  /** Calls back when it is lost, until the returned function is called. */
  guard(onGone: () => void): () => void;
}

/** A signal for as long as one has something that hangs on a session: a mutex, or leadership. */
export class Tenure {
  #controller = new AbortController();
  #stop = () => {};

  /** One that has not begun. */
  constructor(reason: Error) {
    this.end(reason);
  }

  /** Aborts when the tenure ends; aborted before it has begun. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** It ends with the session, with the place, or when it is given up. */
  begin(session: AbortSignal, place: Guarded, lost: () => Error): void {
    this.#stop();
    const controller = new AbortController();
    this.#controller = controller;
    const unlink = link([session], controller);
    const stopGuard = place.guard(() => controller.abort(lost()));
    this.#stop = () => {
      stopGuard();
      unlink();
    };
  }

  /** Before the place is left, whose end would look like a loss. */
  end(reason: Error): void {
    this.#stop();
    this.#controller.abort(reason);
  }
}
