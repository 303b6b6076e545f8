import { StoreRefusedError } from "../lock/errors.ts";

/** Failures that later calls of their transactions have got. */
const repeated = new WeakSet<object>();

function repeat(error: unknown): unknown {
  if (typeof error === "object" && error !== null) repeated.add(error);
  return error;
}

/** Whether a call of a transaction has got the failure of an earlier one. */
export function isRepeated(error: object): boolean {
  return repeated.has(error);
}

/** Runs the calls of a transaction one after the other, and refuses calls after its first failure and its end. */
export class SerialCalls {
  readonly #address: string;
  #failure: { readonly error: unknown } | undefined;
  #isOver = false;
  #last: Promise<unknown> = Promise.resolve();

  constructor(address: string) {
    this.#address = address;
  }

  run<T>(call: () => Promise<T>): Promise<T> {
    const answer = this.#last.then(async () => {
      if (this.#failure) throw repeat(this.#failure.error);
      if (this.#isOver) {
        const problem = "this transaction has ended; make all its calls before its body returns";
        throw new StoreRefusedError(this.#address, problem);
      }
      try {
        return await call();
      } catch (error) {
        this.#failure = { error };
        throw error;
      }
    });
    this.#last = answer.catch(() => {});
    return answer;
  }

  /** Runs the last call. */
  async finish<T>(call: () => Promise<T>): Promise<T> {
    return this.run(async () => {
      const result = await call();
      this.#isOver = true;
      return result;
    });
  }

  /** The error of the first call that failed. Undefined without one. */
  get failure(): unknown {
    return this.#failure?.error;
  }

  /** Waits for the calls that the body did not await, and refuses further ones. */
  async end(): Promise<void> {
    await this.#last;
    this.#isOver = true;
  }
}
