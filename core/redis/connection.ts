import type { Command, Reply } from "./redis.ts";

/** One connection, from its beginning to its end. Nothing is sent twice, and every failure is a CommandFailure. */
export interface Connection {
  /** Whether commands can be sent over it. */
  readonly isOpen: boolean;

  /** Commands are carried out in the order in which they were sent. */
  send(command: Command): Promise<Reply>;

  /** What is under way is no longer waited for. */
  close(): void;
}

export interface ConnectionEvents {
  message(channel: string, text: string): void;
  ended(): void;
}

/** Given up when the signal aborts. */
export type Connect = (signal: AbortSignal, events: ConnectionEvents) => Promise<Connection>;
