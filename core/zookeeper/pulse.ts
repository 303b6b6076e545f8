import { after, type Instant, instant, type Millis } from "../lock/time.ts";

export interface PulseOptions {
  readonly ttl: Millis;

  /** A request that the servers' leader has to answer. */
  beat(): Promise<unknown>;

  /** The servers count the ttl from here, at the least. */
  proven(sentAt: Instant): void;

  /** A beat was not answered in time. */
  missed(): void;
}

/**
 * The heartbeats of a session on one connection.
 *
 * A server that follows another one passes on which sessions it has heard of, only every half tick, and an answer
 * of its own does not prove that it still can: cut off from its leader, it goes on answering while the leader lets
 * the session expire. So a beat is a `sync`, which the leader answers, and proves only what was passed on before
 * it: what was sent a quarter of the ttl earlier, since the least timeout is two ticks.
 */
export class Pulse {
  readonly #options: PulseOptions;

  /** When something was sent that was answered, oldest first. */
  #heard: readonly Instant[];
  #cancel = () => {};
  #isOver = false;

  /** The connection was made with a request sent at `sentAt`, which the leader has answered. */
  constructor(sentAt: Instant, options: PulseOptions) {
    this.#options = options;
    this.#heard = [sentAt];
    this.#beatSoon();
  }

  stop(): void {
    this.#isOver = true;
    this.#cancel();
  }

  #beatSoon(): void {
    // Timers fire up to a millisecond early.
    const span = this.#options.ttl / 4 + 2;
    this.#cancel = after(span, () => void this.#beat(), { idle: true });
  }

  async #beat(): Promise<void> {
    const { ttl, beat, proven, missed } = this.#options;
    const sentAt = instant();
    // There is time left then to find another server.
    this.#cancel = after(ttl / 5, missed, { idle: true });
    const isAnswered = await beat().then(
      () => true,
      () => false,
    );
    this.#cancel();
    if (!isAnswered || this.#isOver) return;
    const passedOn = this.#heard.filter(({ mono }) => sentAt.mono - mono >= ttl / 4);
    const latest = passedOn.at(-1);
    if (latest) proven(latest);
    this.#heard = [...this.#heard.slice(Math.max(0, passedOn.length - 1)), sentAt];
    this.#beatSoon();
  }
}
