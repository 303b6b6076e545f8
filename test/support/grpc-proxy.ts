import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { dirname, join } from "node:path";
import { acceptsConnections } from "../../infra/servers/probes.ts";
import { freePort } from "../../infra/servers/processes.ts";
import type { EtcdServer } from "./etcd-servers.ts";
import { tracked } from "./running.ts";
import { until } from "./until.ts";

/** An `etcd grpc-proxy` before a server, which shares watches and keepalives among its clients, under ids of its own. */
export class GrpcProxy implements AsyncDisposable {
  /** The server behind the proxy, as clients reach it. */
  readonly server: EtcdServer;
  readonly #child: ChildProcess;

  private constructor(server: EtcdServer, child: ChildProcess) {
    this.server = server;
    this.#child = child;
  }

  /** Starts a proxy of the same release as the server. */
  static async to(server: EtcdServer): Promise<GrpcProxy> {
    const port = await freePort();
    const endpoint = `127.0.0.1:${port}`;
    const args = [`--listen-addr=${endpoint}`, `--endpoints=${server.endpoints.join(",")}`];
    const file = join(dirname(server.etcdctl), "etcd");
    const child = tracked(spawn(file, ["grpc-proxy", "start", ...args], { stdio: "ignore" }));
    await until(() => acceptsConnections(port), 30_000);
    const name = `${server.name} behind grpc-proxy`;
    const about = { ...server, name, url: `etcd://${endpoint}`, endpoints: [endpoint] };
    return new GrpcProxy(about, child);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null) return;
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
  }
}
