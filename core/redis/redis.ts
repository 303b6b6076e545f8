import { createHash } from "node:crypto";
import type { Millis } from "../lock/time.ts";

/** One Redis server as everything here uses it. */
export interface Redis extends AsyncDisposable {
  /** The server, for messages: no secrets. */
  readonly address: string;

  /**
   * Runs a script, also on a server that does not know it, or no longer.
   *
   * Rejects with a StoreUnavailableError or StoreRefusedError only when it has certainly not happened, and with an
   * UnknownOutcomeError when it may have, or may still, unless the script only reads. It is never sent again unless
   * the server has said that it was not carried out. Redis undoes nothing of a script that fails half way: one that
   * writes must not come to a command that can fail after the first write.
   */
  run(script: Script, input: Input): Promise<Reply>;

  /**
   * The same, and how many replicas have confirmed all of it: it waits until `count` of them have, for up to `span`,
   * and no longer than half the client's timeout.
   *
   * Meanwhile everything else that this client asks for has to wait.
   */
  runOnReplicas(
    script: Script,
    input: Input,
    replicas: Replicas,
  ): Promise<{ readonly reply: Reply; readonly confirmed: number }>;

  /** One command, such as ["GET", key]. Rejects as `run` does. */
  call(command: Command, options?: CallOptions): Promise<Reply>;

  /**
   * Listens on a channel from now on, until the returned function is called. It survives broken connections: each
   * time the subscription stands anew, `ready` is called, and what was published before may have gone unheard.
   */
  subscribe(channel: string, subscriber: Subscriber): () => void;

  /** Ends subscriptions and calls under way, and lets the process exit. Never rejects. */
  close(): Promise<void>;
}

/** Made once, by `script`, and used again and again. */
export interface Script {
  readonly lua: string;

  /** What the server knows it by. */
  readonly sha1: string;

  /** It writes nothing. */
  readonly reads: boolean;
}

export interface Input {
  /** All keys that the script touches: on a cluster they must be of one slot. */
  readonly keys: readonly string[];
  readonly args?: readonly Argument[];
  readonly signal?: AbortSignal;
}

export interface CallOptions {
  readonly signal?: AbortSignal;

  /** It changes nothing: however its answer was lost, it rejects with a StoreUnavailableError. */
  readonly reads?: boolean;
}

export interface Replicas {
  readonly count: number;
  readonly span: Millis;
}

export type Argument = string | number;

export type Command = readonly [name: string, ...args: Argument[]];

/** Integers are texts: they have 64 bits. What is nil, or false in Lua, is undefined. */
export type Reply = string | undefined | readonly Reply[];

export interface Subscriber {
  ready(): void;
  message(text: string): void;
}

export interface RedisOptions {
  readonly host: string;

  /** Default 6379. */
  readonly port?: number;
  readonly user?: string;
  readonly password?: string;

  /** The number of the database. Default 0, the only one of a cluster. */
  readonly database?: number;

  /** Encrypts, and checks the server's certificate and host name; there is no way not to check. */
  readonly tls?: RedisTls;

  /** The longest wait for a connection, and for one answer, in milliseconds. Default 5,000. */
  readonly timeout?: Millis;
}

/** PEM texts. Without `ca` the certificate authorities that Node trusts count. */
export interface RedisTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

export function script(lua: string, { reads = false }: { readonly reads?: boolean } = {}): Script {
  return { lua, sha1: createHash("sha1").update(lua).digest("hex"), reads };
}
