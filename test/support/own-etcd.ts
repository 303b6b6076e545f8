import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { acceptsConnections } from "../../infra/servers/probes.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { forget, reap } from "../../infra/servers/reap.ts";
import { type EtcdServer, QUICK_ETCD } from "./etcd-servers.ts";
import { until } from "./until.ts";

/** An etcd of one test: one member, which can be restarted on its data. */
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

  /** Starts a member of the same release as another one; `https` needs arguments that name its certificate. */
  static async like({ etcdctl }: EtcdServer, args: readonly string[] = [], scheme = "http") {
    const [port, peer] = [await freePort(), await freePort()];
    const folder = await mkdtemp(join(tmpdir(), "lockstep-etcd-"));
    reap(folder);
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
        ...QUICK_ETCD.etcd,
        ...args,
      ],
      folder,
    );
    try {
      await own.start();
      return own;
    } catch (error) {
      await own[Symbol.asyncDispose]();
      throw error;
    }
  }

  get endpoint(): string {
    return `127.0.0.1:${this.port}`;
  }

  async start(): Promise<void> {
    const [file, ...args] = this.#command;
    this.#child = spawn(file, args, { stdio: "ignore" });
    await until(() => acceptsConnections(this.port), 30_000);
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  /** Sends one request to the JSON API, without any client of ours. */
  async post(path: string, message: object, token?: string): Promise<Record<string, unknown>> {
    const headers = { ...(token !== undefined && { Authorization: token }) };
    const body = JSON.stringify(message);
    const answer = await fetch(`http://${this.endpoint}${path}`, { method: "POST", headers, body });
    if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
    return (await answer.json()) as Record<string, unknown>;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await rm(this.#folder, { recursive: true, force: true });
    forget(this.#folder);
  }
}
