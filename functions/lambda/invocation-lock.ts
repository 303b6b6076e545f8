import { deadline, type Scope } from "../../core/lock/abort.ts";
import { LockLostError } from "../../core/lock/errors.ts";
import type { Fence } from "../../core/lock/fence.ts";
import { lossOf } from "../../core/lock/holding.ts";
import type { Lock, Unlocked } from "../../core/lock/lock.ts";
import type { Deadline, Millis } from "../../core/lock/time.ts";

/**
 * A lock that dies with its invocation.
 *
 * Code that is still running when the environment is frozen goes on when it is thawed for another event. From then
 * on all of this throws a LockLostError, the fence included: nothing can be sent to a resource that might still
 * accept it.
 */
export class InvocationLock implements Lock {
  readonly name: string;
  readonly #lock: Lock;
  readonly #deadline: Deadline;
  readonly #scope: Scope;

  /** It counts as lost from `deadline` on. */
  constructor(lock: Lock, end: Deadline) {
    this.name = lock.name;
    this.#lock = lock;
    this.#deadline = end;
    this.#scope = deadline(end.remaining(), () => this.#outlived(), lock.signal);
  }

  get signal(): AbortSignal {
    return this.#scope.signal;
  }

  /** How it was lost to the store, before it was to be given back. */
  get loss(): LockLostError | undefined {
    return lossOf(this.#lock);
  }

  get fence(): Fence {
    this.assertHeld();
    return this.#lock.fence;
  }

  assertHeld(spare: Millis = 0): void {
    this.signal.throwIfAborted();
    this.#lock.assertHeld(spare);
    if (this.#deadline.remaining() < Math.max(spare, 1)) throw this.#outlived();
  }

  async ensure(span: Millis): Promise<void> {
    this.assertHeld(span);
    await this.#lock.ensure(span);
  }

  async unlock(): Promise<Unlocked> {
    try {
      return await this.#lock.unlock();
    } finally {
      this.#scope[Symbol.dispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.unlock().catch(() => {});
  }

  #outlived(): LockLostError {
    return new LockLostError([this.name], "max-hold");
  }
}
