import { Environment, type FunctionOptions, type Invoked } from "./environment.ts";

export interface ScaledOptions extends FunctionOptions {
  /** The highest number of environments. Default 1. */
  readonly concurrency?: number;
}

/** A function as Lambda runs it: one environment per concurrent event, each kept for later events. */
export class LambdaFunction implements AsyncDisposable {
  readonly #options: ScaledOptions;
  readonly #idle: Environment[] = [];
  readonly #busy = new Set<Environment>();
  #starting = 0;
  #billed = 0;

  constructor(options: ScaledOptions) {
    this.#options = options;
  }

  get concurrency(): number {
    return this.#options.concurrency ?? 1;
  }

  /** The duration of all invocations, in milliseconds. */
  get billed(): number {
    return Math.round(this.#billed);
  }

  /** Throttles an event if all environments are busy. */
  async invoke(event: unknown): Promise<Invoked | { readonly type: "throttled" }> {
    if (this.#busy.size + this.#starting >= this.concurrency) return { type: "throttled" };
    const environment = this.#idle.pop() ?? (await this.#start());
    if (!(environment instanceof Environment)) return environment;
    this.#busy.add(environment);
    const startedAt = performance.now();
    try {
      return await environment.invoke(event);
    } finally {
      this.#billed += performance.now() - startedAt;
      this.#busy.delete(environment);
      if (!environment.isGone) this.#idle.push(environment);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#idle, ...this.#busy].map((environment) => environment.stop()));
  }

  async #start(): Promise<Environment | Invoked> {
    this.#starting += 1;
    try {
      return await Environment.start(this.#options);
    } finally {
      this.#starting -= 1;
    }
  }
}
