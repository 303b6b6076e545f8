import type { Instant, Millis } from "../../../lock/time.ts";
import type { CommandFailure } from "./failure.ts";
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

  /** An attempt to connect has failed, and another one follows. */
  failed?(failure: CommandFailure): void;
}

/** Opens a connection, and gives up when the signal aborts. */
export type Connect = (
  signal: AbortSignal,
  events: RedisConnectionEvents,
) => Promise<RedisConnection>;

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

/** Returns how to connect to one server. */
export type Dial = (server: ServerAddress) => Connect;

/** The way to the server that has the data, which may be another one each time. */
export interface Route {
  /** The servers, for messages. */
  readonly address: string;
  readonly connect: Connect;

  /**
   * Takes note of an error of the server. Returns how to send the command again; undefined when another connection does
   * not help. The command has certainly not been executed.
   */
  redirect?(failure: CommandFailure): Redirection | undefined;
}

export interface Redirection {
  /** For this one command. Default: the connection of all commands. */
  readonly connect?: Connect;

  /** Whether all commands need another connection. */
  readonly hasMoved: boolean;
}

export interface RouteOptions {
  /** The longest wait for a connection, and for one answer. */
  readonly timeout: Millis;

  /** A key of the client's slot in a cluster. */
  readonly key: string;
}
