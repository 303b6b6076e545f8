/** What a holder can ask its lock before it writes, and can send with the write. */
export interface Held {
  isHeld(): boolean;
  readonly fence?: string;
}

/** One lock, as its documentation says it is used. */
export interface NamedLock {
  /** Waits for the lock, or rejects if the package does not wait, and runs `body` under it. */
  withLock(body: (held: Held) => Promise<void>): Promise<void>;
}

export interface LockOptions {
  /** The URL of the server. */
  readonly url: string;

  /** host:port of each server that the URL names. */
  readonly nodes: readonly string[];

  /** How long the lock lasts without its holder, in milliseconds. */
  readonly ttl: number;
}
