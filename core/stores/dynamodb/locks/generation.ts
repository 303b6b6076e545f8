import { sleep } from "../../../lock/abort.ts";
import { HIGHEST_GENERATION, noMoreGenerations } from "../../../lock/checks.ts";
import { UnknownOutcomeError } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { elapsedSince, type Instant, instant, type Millis } from "../../../lock/time.ts";
import type { Dynamodb } from "../client/dynamodb.ts";

/** The generation of fences: an item of the table, and what this client remembers of it. */
export class Generation {
  readonly #dynamodb: Dynamodb;
  readonly #life: Millis;
  #known = 0;
  #readAt: Instant | undefined;

  /** The generation that was read is used for new claims during `life`, and for answers during twice that. */
  constructor(dynamodb: Dynamodb, life: Millis) {
    this.#dynamodb = dynamodb;
    this.#life = life;
  }

  /** Returns the generation for a claim that begins now. */
  async current(signal: AbortSignal): Promise<number> {
    if (this.#age > this.#life) await this.#read(signal);
    return this.#known;
  }

  /** Throws if the generation may have been raised since the claim began. */
  checkFresh(): void {
    if (this.#age <= 2 * this.#life) return;
    throw new UnknownOutcomeError(this.#dynamodb.address, "the fence is of the last generation");
  }

  /** Takes over a generation that a lock has. */
  see(generation: number): void {
    this.#known = Math.max(this.#known, generation);
  }

  /** Resolves when no client uses the former generation any more. */
  async raise(least: number): Promise<number> {
    const before = await this.#read();
    if (before >= HIGHEST_GENERATION) throw noMoreGenerations();
    const raised = Math.max(before + 1, least);
    const { done } = await this.#dynamodb.write([
      {
        key: GENERATION,
        update: "SET #generation = :raised",
        when: "attribute_not_exists(#generation) OR #generation < :raised",
        values: { raised },
      },
    ]);
    if (!done) return this.raise(least);
    this.see(raised);
    await sleep(2 * this.#life);
    return raised;
  }

  get #age(): Millis {
    return this.#readAt ? elapsedSince(this.#readAt) : Number.POSITIVE_INFINITY;
  }

  async #read(signal?: AbortSignal): Promise<number> {
    const sentAt = instant();
    const { address } = this.#dynamodb;
    // A dead connection leaves time for a second attempt and for the claim.
    const item = await retryUntilKnown(
      address,
      "the generation was read",
      signal,
      async (limit) => (await this.#dynamodb.get(GENERATION, limit)) ?? {},
      { attempt: FIRST_READ },
    );
    this.see(Number(item.generation ?? 0));
    this.#readAt = sentAt;
    return this.#known;
  }
}

const FIRST_READ: Millis = 500;

/** The place of the generation of fences. */
export const GENERATION = { pk: "generation", sk: "generation" };
