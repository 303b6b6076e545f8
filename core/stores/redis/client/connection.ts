import type { Instant } from "../../../lock/time.ts";
import type { Command, Reply } from "./redis.ts";

/** One connection, from its beginning to its end. No command is sent twice, and every failure is a CommandFailure. */
export interface RedisConnection {
  /** Whether commands can be sent over it. */
  readonly isOpen: boolean;

  /** When the last data of the server arrived. */
  readonly heardAt: Instant;

  /** Sends a command. The server executes commands in the order in which they were sent. */
  send(command: Command): Promise<Reply>;

  /** Closes the connection; commands under way fail. */
  close(): void;
}

export interface RedisConnectionEvents {
  message(channel: string, text: string): void;
  ended(): void;
}

/** Opens a connection, and gives up when the signal aborts. */
export type Connect = (
  signal: AbortSignal,
  events: RedisConnectionEvents,
) => Promise<RedisConnection>;
