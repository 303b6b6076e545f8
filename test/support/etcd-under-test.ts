import { randomUUID } from "node:crypto";
import { inject } from "vitest";
import type { Etcd, EtcdOptions, Op, Txn } from "../../core/etcd/etcd.ts";
import { openEtcdGateway } from "../../core/etcd/gateway.ts";
import { openEtcd } from "../../core/etcd/grpc.ts";
import { nodeFetch } from "../../core/etcd/node-fetch.ts";
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
  grpc: openEtcd,
  gateway: openEtcdGateway,
  "gateway by nodeFetch": (options: EtcdOptions) =>
    openEtcdGateway({ ...options, fetch: nodeFetch() }),
};

/** One server of each version. */
export function singleEtcds(): readonly EtcdServer[] {
  return inject("etcdServers").filter(({ endpoints }) => endpoints.length === 1);
}

/** gRPC and the gateway by the runtime's fetch, to every version. */
export function etcdsUnderTest(): readonly EtcdUnderTest[] {
  return singleEtcds().flatMap((server) => [
    underTest(server, "grpc"),
    underTest(server, "gateway"),
  ]);
}

/** The gateway by `nodeFetch`, to one version: what it does otherwise is up to Node. */
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

/** A prefix that nobody else uses. */
export function anyPrefix(): string {
  return `${randomUUID()}/`;
}

/** A lease that nobody else has. */
export function anyLease(): bigint {
  return (crypto.getRandomValues(new BigUint64Array(1))[0] as bigint) >> 1n;
}

/** A transaction without conditions. */
export function always(...ops: readonly Op[]): Txn {
  return { when: [], do: ops };
}

/** A wire to a server's first endpoint. */
export function wireTo({ endpoints: [endpoint = ""] }: EtcdServer, port?: number) {
  return TcpProxy.to(Number(endpoint.split(":")[1]), port);
}
