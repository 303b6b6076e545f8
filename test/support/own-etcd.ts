import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "../../infra/servers/processes.ts";
import { forget, reap } from "../../infra/servers/reap.ts";
import { until } from "./until.ts";

/** An etcd that the tests may use. */
export interface EtcdServer {
  readonly name: string;
  readonly version: string;
  readonly endpoints: readonly string[];
  readonly etcdctl: string;
}

/** An etcd of a test's own: one member, which can be started again on its data. */
export class OwnEtcd implements AsyncDisposable {
  readonly port: number;
  readonly #command: readonly [string, ...string[]];
  readonly #folder: string;
  #child: ChildProcess | undefined;

  private constructor(port: number, command: readonly [string, ...string[]], folder: string) {
    this.port = port;
    this.#command = command;
    this.#folder = folder;
  }

  /** Of the same release as another; `https` needs arguments that name its certificate. */
  static async like({ etcdctl }: EtcdServer, args: readonly string[] = [], scheme = "http") {
    const [port, peer] = [await freePort(), await freePort()];
    const folder = await mkdtemp(join(tmpdir(), "lockstep-etcd-"));
    const own = new OwnEtcd(
      port,
      [
        join(dirname(etcdctl), "etcd"),
        `--data-dir=${folder}`,
        `--listen-client-urls=${scheme}://127.0.0.1:${port}`,
        `--advertise-client-urls=${scheme}://127.0.0.1:${port}`,
        `--listen-peer-urls=http://127.0.0.1:${peer}`,
        `--initial-advertise-peer-urls=http://127.0.0.1:${peer}`,
        `--initial-cluster=default=http://127.0.0.1:${peer}`,
        // The least ttl of a lease is one and a half elections, in whole seconds: 1.
        "--heartbeat-interval=20",
        "--election-timeout=200",
        ...args,
      ],
      folder,
    );
    await own.start();
    return own;
  }

  get endpoint(): string {
    return `127.0.0.1:${this.port}`;
  }

  async start(): Promise<void> {
    const [file, ...args] = this.#command;
    this.#child = spawn(file, args, { stdio: "ignore" });
    reap(this.#child.pid as number, this.#folder);
    await until(() => accepts(this.port), 30_000);
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  /** One request to its JSON API, past every client here. */
  async post(path: string, message: object, token?: string): Promise<Record<string, unknown>> {
    const headers = { ...(token !== undefined && { Authorization: token }) };
    const body = JSON.stringify(message);
    const answer = await fetch(`http://${this.endpoint}${path}`, { method: "POST", headers, body });
    if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
    return (await answer.json()) as Record<string, unknown>;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    forget(this.#folder);
    await rm(this.#folder, { recursive: true, force: true });
  }
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" });
    const answer = (accepted: boolean) => {
      socket.destroy();
      resolve(accepted);
    };
    socket.once("connect", () => answer(true)).once("error", () => answer(false));
  });
}

/** Debian's etcd and, where a script beside this project brings it, a later one. */
export async function startEtcds(): Promise<readonly (EtcdServer & AsyncDisposable)[]> {
  return Promise.all(folders().map((folder) => startEtcd(join(folder, "etcdctl"))));
}

async function startEtcd(etcdctl: string): Promise<EtcdServer & AsyncDisposable> {
  const [, version = ""] = /version: (\S+)/.exec(run(etcdctl, "version")) ?? [];
  const server = { name: `etcd ${version}`, version, endpoints: [], etcdctl };
  const own = await OwnEtcd.like(server);
  return {
    ...server,
    endpoints: [own.endpoint],
    [Symbol.asyncDispose]: () => own[Symbol.asyncDispose](),
  };
}

function folders(): readonly string[] {
  const script = fileURLToPath(new URL("../../../shared/servers/newer-etcd", import.meta.url));
  const newer = [script, "/work/shared/servers/newer-etcd"].find(existsSync);
  return [dirname(run("which", "etcdctl").trim()), ...(newer ? [run(newer).trim()] : [])];
}

function run(file: string, ...args: readonly string[]): string {
  return execFileSync(file, args, { encoding: "utf8" });
}
