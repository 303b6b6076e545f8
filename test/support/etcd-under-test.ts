import { randomUUID } from "node:crypto";
import { inject } from "vitest";
import type { Etcd, EtcdOptions, Op, Txn } from "../../core/etcd/etcd.ts";
import { openEtcdGateway } from "../../core/etcd/gateway.ts";
import { openEtcd } from "../../core/etcd/grpc.ts";
import type { EtcdServer } from "./etcd-servers.ts";
import { TcpProxy } from "./tcp-proxy.ts";

/** A transport to a server. */
export interface EtcdUnderTest {
  readonly name: string;
  readonly server: EtcdServer;
  readonly transport: keyof typeof TRANSPORTS;
  open(options?: Partial<EtcdOptions>): Etcd;
}

export const TRANSPORTS = { grpc: openEtcd, gateway: openEtcdGateway };

/** One server of each version. */
export function singleEtcds(): readonly EtcdServer[] {
  return inject("etcdServers").filter(({ endpoints }) => endpoints.length === 1);
}

/** Every transport to every version. */
export function etcdsUnderTest(): readonly EtcdUnderTest[] {
  const transports = Object.keys(TRANSPORTS) as (keyof typeof TRANSPORTS)[];
  return singleEtcds().flatMap((server) =>
    transports.map((transport) => underTest(server, transport)),
  );
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
