import { execFile } from "node:child_process";
import { randomInt } from "node:crypto";
import { promisify } from "node:util";
import type { ServerNode } from "../../infra/servers/server.ts";
import type { Placement } from "../../infra/servers/start.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";
import type { Fault } from "./nemesis.ts";

const run = promisify(execFile);

/** Runs `ip` of iproute2, with these words as its arguments. */
function ip(words: string): Promise<unknown> {
  return run("ip", words.split(" "));
}

/** Network namespaces, one for each process of a cluster: one process can be cut off from the others, and not from its clients. */
export class Namespaces implements AsyncDisposable {
  /** Names of interfaces have 15 characters at the most. */
  readonly #name = `ls${randomInt(1_000_000)}`;
  readonly #subnet = `10.${randomInt(100, 200)}.${randomInt(256)}`;
  readonly #hosts: string[] = [];
  readonly #forwards: TcpProxy[] = [];

  private constructor() {}

  /** Resolves to undefined for another user than root, or without iproute2. */
  static async create(): Promise<Namespaces | undefined> {
    const all = new Namespaces();
    const isCreated = await all.#bridge().then(
      () => true,
      () => false,
    );
    return isCreated ? all : undefined;
  }

  async #bridge(): Promise<void> {
    await ip(`link add ${this.#name} type bridge`);
    await ip(`addr add ${this.#subnet}.254/24 dev ${this.#name}`);
    await ip(`link set ${this.#name} up`);
  }

  /** Makes a namespace for the process with this port. Clients reach the process on the same port of loopback. */
  async place(port: number): Promise<Placement> {
    const host = `${this.#subnet}.${this.#hosts.length + 1}`;
    const name = `${this.#name}-${this.#hosts.length}`;
    this.#hosts.push(host);
    await ip(`netns add ${name}`);
    await ip(`link add ${name}v type veth peer name eth0 netns ${name}`);
    await ip(`link set ${name}v master ${this.#name} up`);
    await ip(`-n ${name} addr add ${host}/24 dev eth0`);
    await ip(`-n ${name} link set eth0 up`);
    await ip(`-n ${name} link set lo up`);
    this.#forwards.push(await TcpProxy.to(port, port, host));
    return { host, enter: (command) => ["ip", "netns", "exec", name, ...command] };
  }

  /** Drops what the process at `host` and the others send to each other, without an error, until `mend`. */
  async cutOff(host: string): Promise<void> {
    await this.#route("add", host);
  }

  async mend(host: string): Promise<void> {
    await this.#route("del", host);
  }

  async #route(change: "add" | "del", host: string): Promise<void> {
    const at = this.#hosts.indexOf(host);
    await Promise.all(
      this.#hosts.flatMap((other, i) =>
        i === at
          ? []
          : [
              ip(`-n ${this.#name}-${at} route ${change} blackhole ${other}`),
              ip(`-n ${this.#name}-${i} route ${change} blackhole ${host}`),
            ],
      ),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#forwards.map((forward) => forward.close()));
    for (const i of this.#hosts.keys()) await ip(`netns del ${this.#name}-${i}`);
    await ip(`link del ${this.#name}`);
  }
}

/** Cuts the leader off from the other nodes, until another one leads and for a while longer. Clients still reach all. */
export function leaderCutOff(
  namespaces: Namespaces | undefined,
  leader: () => Promise<ServerNode | undefined>,
): Fault | string {
  if (!namespaces) return "only root may make network namespaces";
  return async ({ pause }) => {
    const old = await until(() => leader().catch(() => undefined));
    const { host } = old.config;
    await namespaces.cutOff(host);
    try {
      const isReplaced = async () => ((await leader()) ?? old) !== old;
      const hasMet = until(() => isReplaced().catch(() => false), 30_000).catch(() => false);
      if (await hasMet) await pause();
      return await hasMet;
    } finally {
      await namespaces.mend(host);
    }
  };
}
