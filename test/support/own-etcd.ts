import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { get } from "../../core/etcd/etcd.ts";
import { openEtcd } from "../../core/etcd/grpc.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { forget, reap } from "../../infra/servers/reap.ts";
import { until } from "./until.ts";

/** An etcd server of one test's own, that it may kill. */
export interface OwnEtcd extends AsyncDisposable {
  readonly endpoints: readonly string[];
  kill(): Promise<void>;

  /** On the same ports and data as before. */
  start(): Promise<void>;
}

export async function ownEtcd(binary = "etcd"): Promise<OwnEtcd> {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-etcd-"));
  const [client, peer] = [await freePort(), await freePort()];
  const endpoints = [`127.0.0.1:${client}`];
  let child: ChildProcess;
  const start = async () => {
    child = spawn(binary, flags(folder, client, peer), { stdio: "ignore" });
    reap(child.pid as number, folder);
    await untilItAnswers(endpoints);
  };
  const kill = async () => {
    child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  };
  await start();
  return {
    endpoints,
    start,
    kill,
    async [Symbol.asyncDispose]() {
      await kill();
      forget(folder);
      await rm(folder, { recursive: true });
    },
  };
}

function flags(folder: string, client: number, peer: number): string[] {
  const [clients, peers] = [`http://127.0.0.1:${client}`, `http://127.0.0.1:${peer}`];
  return [
    `--data-dir=${folder}/data`,
    `--listen-client-urls=${clients}`,
    `--advertise-client-urls=${clients}`,
    `--listen-peer-urls=${peers}`,
    `--initial-advertise-peer-urls=${peers}`,
    `--initial-cluster=default=${peers}`,
    // So that leases of a second are granted.
    "--heartbeat-interval=20",
    "--election-timeout=200",
  ];
}

async function untilItAnswers(endpoints: readonly string[]): Promise<void> {
  const etcd = openEtcd({ endpoints });
  await until(() => etcd.range(get("ready")).catch(() => undefined));
  await etcd.close();
}
