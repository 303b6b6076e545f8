import { sha1 } from "@noble/hashes/legacy.js";
import { bytesToHex } from "@noble/hashes/utils.js";
import type { Duration } from "../../../lock/duration.ts";
import type { Millis } from "../../../lock/time.ts";

/**
 * A client of the Redis server that has the data: one server, the master of a slot of a cluster, or the master that sentinels
 * name. Over HTTP, each command is a request of its own, and the optional
 * members are missing.
 */
export interface Redis extends AsyncDisposable {
  /** The server, for messages; without secrets. */
  readonly address: string;

  /** The connection of all commands: another object after each new one. Over HTTP there is none. */
  readonly connection?: unknown;

  /**
   * Runs a script, and loads it on a server that does not know it.
   *
   * Rejects with a StoreUnavailableError or StoreRefusedError only when the script has certainly not been executed, and
   * with an UnknownOutcomeError when it may have been, or may still be, unless the script only reads. Sends a script
   * again only after the server has said that it was not executed. Redis does not roll back a failed script, and a
   * failed script counts as not executed: no command after its first write may fail.
   */
  run(script: Script, input: ScriptInput): Promise<Reply>;

  /**
   * Runs a script, and resolves to how many replicas have confirmed it, too. Waits for `count` of them for up to `span`,
   * and for at most half the client's timeout: 1 s by default.
   *
   * Meanwhile all other commands of this client wait.
   */
  runOnReplicas?(
    script: Script,
    input: ScriptInput,
    replicas: Replicas,
  ): Promise<{ readonly reply: Reply; readonly confirmed: number }>;

  /** Sends one command, such as ["GET", key]. Rejects as `run` does. */
  call(command: Command, options?: CommandOptions): Promise<Reply>;

  /**
   * Subscribes to a channel until the returned function is called. Reconnects after a broken connection: `ready` is
   * called at each new subscription, and earlier messages may be lost.
   */
  subscribe?(channel: string, subscriber: Subscriber): () => void;

  /** Ends subscriptions and commands under way, and lets the process exit. Never rejects. */
  close(): Promise<void>;
}

/** A Lua script, made by `script`. */
export interface Script {
  readonly lua: string;

  /** The hash by which the server knows the script. */
  readonly sha1: string;

  /** Whether the script only reads. */
  readonly reads: boolean;
}

export interface ScriptInput {
  /** All keys that the script uses; in a cluster, keys of the client's slot. */
  readonly keys: readonly string[];
  readonly args?: readonly Argument[];
  readonly signal?: AbortSignal;
}

export interface CommandOptions {
  readonly signal?: AbortSignal;

  /** Whether the command only reads: after a lost answer it rejects with a StoreUnavailableError. */
  readonly reads?: boolean;
}

export interface Replicas {
  readonly count: number;
  readonly span: Millis;
}

export type Argument = string | number;

export type Command = readonly [name: string, ...args: Argument[]];

/** A reply: integers are texts, since they have 64 bits; nil, and false in Lua, is undefined. */
export type Reply = string | undefined | readonly Reply[];

/** Reads what a client package makes of a reply. */
export function toReply(raw: unknown): Reply {
  if (Array.isArray(raw)) return raw.map(toReply);
  return raw === null ? undefined : String(raw);
}

export interface Subscriber {
  ready(): void;
  message(text: string): void;
}

/** One server. */
export interface RedisOptions extends RedisLogin, RedisServer {}

export interface RedisServer {
  readonly host: string;

  /** Default 6379; of a sentinel 26379. */
  readonly port?: number;
}

/** A Redis Cluster. */
export interface RedisClusterOptions extends Omit<RedisLogin, "database"> {
  /** Some of the nodes. The client learns the others from any of these. */
  readonly cluster: readonly RedisServer[];
}

/** A server and its replicas, watched by sentinels. */
export interface RedisSentinelOptions extends RedisLogin {
  /** All sentinels. */
  readonly sentinels: readonly RedisServer[];

  /** The name by which the sentinels know the master. */
  readonly master: string;

  /** The login at the sentinels. Default: without a password, and not encrypted. */
  readonly sentinelLogin?: Pick<RedisLogin, "user" | "password" | "tls">;
}

/** The options of each connection. */
export interface RedisLogin {
  readonly user?: string;
  readonly password?: string;

  /** The number of the database. Default 0, the only one of a cluster. */
  readonly database?: number;

  /** Encrypts, and always verifies the server's certificate and host name. */
  readonly tls?: RedisTls;

  /**
   * The longest wait for a connection, and for one answer. Default 2 s.
   *
   * A connection that is silent for so long while an answer is due is closed. After a command without an answer, and
   * when an idle connection is dead, the next command uses another connection.
   */
  readonly timeout?: Duration;
}

/** PEM texts. Without `ca`, the certificate authorities of Node count. */
export interface RedisTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

const utf8 = new TextEncoder();

export function script(lua: string, { reads = false }: { readonly reads?: boolean } = {}): Script {
  let hash: string | undefined;
  return {
    lua,
    reads,
    /** Hashed on first use: a function should not hash scripts that it does not run. */
    get sha1() {
      hash ??= bytesToHex(sha1(utf8.encode(lua)));
      return hash;
    },
  };
}
