import type { Requirement } from "./binaries.ts";

/** The address, the ports and the data folder of one server process. */
export interface NodeConfig {
  /** Where the other processes reach this one. Clients reach it on loopback. */
  readonly host: string;

  /** The port for clients. */
  readonly port: number;

  /** The ports for peers. */
  readonly peerPorts: readonly number[];
  readonly folder: string;
}

export type Command = readonly [file: string, ...args: string[]];

/** How to start a kind of server. A new kind is an entry of `KINDS` and services in compose.yaml. */
export interface ServerKind extends Requirement {
  /** The number of processes of a server. */
  readonly size: number;

  /** The number of ports for peers per process. Default 0. */
  readonly peerPorts?: number;

  /** The services in compose.yaml, one per process. */
  readonly containers: readonly string[];

  /** The user of the processes when this process is root's. For servers that refuse to run as root. */
  readonly user?: string;

  /** Whether the servers count a lock's time by their wall clock, read through the C library, and nothing else by it. */
  readonly hasWallClock?: boolean;

  /** Ends a process at once, with all that it has at the system. Default: SIGKILL. */
  readonly stopSignal?: NodeJS.Signals;

  /** The arguments that make the binary print its version. Default: --version. */
  readonly version?: readonly string[];

  /** Files to write into the folder before the first command, by name. */
  files?(config: NodeConfig, all: readonly NodeConfig[]): Readonly<Record<string, string>>;

  /** Returns the command that initialises the data folder; undefined if the process needs none. */
  prepare?(
    binary: string,
    version: string,
    config: NodeConfig,
    all: readonly NodeConfig[],
  ): Command | undefined;

  /** Returns the command of the process. */
  start(binary: string, version: string, config: NodeConfig, all: readonly NodeConfig[]): Command;

  /** Whether the process on this port serves requests. */
  serves(port: number): Promise<boolean>;

  /** Returns the store's URL. */
  url(ports: readonly number[]): string;
}
