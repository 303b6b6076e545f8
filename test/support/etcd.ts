import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { promisify } from "node:util";
import { type Etcd, get, type KeyValue } from "../../core/stores/etcd/client/etcd.ts";
import type { Server, ServerNode } from "../../infra/servers/server.ts";
import type { EtcdServer } from "./etcd-servers.ts";

/** Returns a prefix that no other test uses. */
export function freshPrefix(): string {
  return `test-${randomBytes(6).toString("hex")}`;
}

/** Returns all keys under the prefix of a mutex or election, the oldest first. */
export async function queueOf(etcd: Etcd, prefix: string): Promise<readonly KeyValue[]> {
  return (await etcd.range(get({ prefix: `${prefix}/` }, { by: "create" }))).kvs;
}

/** Runs the server's own command line, and returns its output. */
export async function etcdctl(
  { etcdctl: file, endpoints }: EtcdServer,
  ...args: readonly string[]
): Promise<string> {
  const { stdout } = await promisify(execFile)(file, [...args], { env: etcdctlEnv(endpoints) });
  return stdout;
}

export function etcdctlEnv(endpoints: readonly string[]): NodeJS.ProcessEnv {
  return { ...process.env, ETCDCTL_API: "3", ETCDCTL_ENDPOINTS: endpoints.join(",") };
}

/** Returns the node that most nodes name as their leader. A leader that was frozen may still name itself. */
export async function leaderOf({ nodes }: Server, about: EtcdServer): Promise<ServerNode> {
  const named = await Promise.all(
    nodes.map(async ({ config }) => {
      const one = { ...about, endpoints: [`127.0.0.1:${config.port}`] };
      const status = await etcdctl(one, "endpoint", "status", "--write-out=json").catch(() => "[]");
      const [{ Status } = { Status: undefined }] = JSON.parse(status);
      return { id: Status?.header.member_id, leader: Status?.leader };
    }),
  );
  const found = nodes.find((_, i) => {
    const votes = named.filter(({ leader }) => leader && leader === named[i]?.id);
    return votes.length > nodes.length / 2;
  });
  if (!found) throw new Error("there is no leader");
  return found;
}
