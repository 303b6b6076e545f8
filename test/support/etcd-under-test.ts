import { randomUUID } from "node:crypto";
import { inject } from "vitest";
import type { Etcd, EtcdOptions, Txn, TxnOp } from "../../core/stores/etcd/client/etcd.ts";
import { etcdGatewayClient } from "../../core/stores/etcd/client/gateway.ts";
import { nodeFetch } from "../../core/stores/node-fetch.ts";
import { etcdClient } from "./etcd-client.ts";
import type { EtcdServer } from "./etcd-servers.ts";
import { TcpProxy } from "./tcp-proxy.ts";

/** A transport to a server. */
export interface EtcdUnderTest {
  readonly name: string;
  readonly server: EtcdServer;
  readonly transport: keyof typeof TRANSPORTS;
  open(options?: Partial<EtcdOptions>): Etcd;
}

export const TRANSPORTS = {
  grpc: etcdClient,
  gateway: etcdGatewayClient,
  "gateway by nodeFetch": (options: EtcdOptions) =>
    etcdGatewayClient({ ...options, fetch: nodeFetch() }),
};

/** One server of each version. */
export function singleEtcds(): readonly EtcdServer[] {
  return inject("etcdServers").filter(({ endpoints }) => endpoints.length === 1);
}

/** gRPC and the gateway by the runtime's fetch, with every version. */
export function etcdsUnderTest(): readonly EtcdUnderTest[] {
  return singleEtcds().flatMap((server) => [
    underTest(server, "grpc"),
    underTest(server, "gateway"),
  ]);
}

/** The gateway by `nodeFetch`, with one version: Node decides the rest of its behaviour. */
export function nodeGatewayUnderTest(): readonly EtcdUnderTest[] {
  return singleEtcds()
    .slice(0, 1)
    .map((server) => underTest(server, "gateway by nodeFetch"));
}

function underTest(server: EtcdServer, transport: keyof typeof TRANSPORTS): EtcdUnderTest {
  const { name, endpoints } = server;
  const open = (options: Partial<EtcdOptions> = {}) =>
    TRANSPORTS[transport]({ endpoints, ...options });
  return { name: `${name} over ${transport}`, server, transport, open };
}

/** Returns a unique prefix. */
export function anyPrefix(): string {
  return `${randomUUID()}/`;
}

/** Returns a unique lease id. */
export function anyLease(): bigint {
  return (crypto.getRandomValues(new BigUint64Array(1))[0] as bigint) >> 1n;
}

/** Makes a transaction without conditions. */
export function always(...ops: readonly TxnOp[]): Txn {
  return { when: [], do: ops };
}

/** Opens a breakable connection to a server's first endpoint. */
export function wireTo({ endpoints: [endpoint = ""] }: EtcdServer, port?: number) {
  return TcpProxy.to(Number(endpoint.split(":")[1]), port);
}
