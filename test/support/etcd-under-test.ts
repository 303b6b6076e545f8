import { randomUUID } from "node:crypto";
import { inject } from "vitest";
import type { Etcd, EtcdOptions, Txn, TxnOp } from "../../core/stores/etcd/client/etcd.ts";
import { etcdGatewayClient } from "../../core/stores/etcd/client/gateway.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";
import { nodeFetch } from "../../core/stores/node-fetch.ts";
import type { EtcdServer } from "./etcd-servers.ts";
import { EVERY_VERSION } from "./matrix.ts";
import { TcpProxy } from "./tcp-proxy.ts";

/** A transport to a server. */
export interface EtcdUnderTest {
  readonly name: string;
  readonly server: EtcdServer;
  readonly transport: TransportName;
  open(options?: Partial<EtcdOptions>): Etcd;
}

type Open = (options: EtcdOptions) => Etcd;

const TRANSPORTS = {
  grpc: async () => etcdClient,
  // Loaded by those that use it: it takes a while.
  etcd3: async () => (await import("./etcd3-client.ts")).etcd3Client,
  gateway: async () => etcdGatewayClient,
  "gateway by nodeFetch": async () => (options: EtcdOptions) =>
    etcdGatewayClient({ ...options, fetch: nodeFetch() }),
} satisfies Record<string, () => Promise<Open>>;

export type TransportName = keyof typeof TRANSPORTS;

export function openerOf(transport: TransportName): Promise<Open> {
  return TRANSPORTS[transport]();
}

/** The transports of long tests: gRPC, and in `npm run test:long` all that differ. */
export async function longTestTransports() {
  const names = EVERY_VERSION ? (["grpc", "gateway", "etcd3"] as const) : (["grpc"] as const);
  return Promise.all(
    names.map(async (transport) => ({ transport, openClient: await openerOf(transport) })),
  );
}

/** One server of each version. */
export function singleEtcds(): readonly EtcdServer[] {
  return inject("etcdServers").filter(({ endpoints }) => endpoints.length === 1);
}

/** gRPC and the gateway by the runtime's fetch, on each server of the run; `npm run test:long` has the gRPC of etcd3, too. */
export function etcdsUnderTest(): Promise<readonly EtcdUnderTest[]> {
  return under(singleEtcds(), "grpc", "gateway", ...(EVERY_VERSION ? ["etcd3" as const] : []));
}

/** Every transport, with every version. For tests that take little time. */
export function allEtcdsUnderTest(): Promise<readonly EtcdUnderTest[]> {
  return under(singleEtcds(), "grpc", "gateway", "etcd3");
}

/** The gateway by `nodeFetch`, with one version: Node decides the rest of its behaviour. */
export function nodeGatewayUnderTest(): Promise<readonly EtcdUnderTest[]> {
  return under(singleEtcds().slice(0, 1), "gateway by nodeFetch");
}

async function under(
  servers: readonly EtcdServer[],
  ...transports: readonly TransportName[]
): Promise<readonly EtcdUnderTest[]> {
  const openers = await Promise.all(transports.map(openerOf));
  return servers.flatMap((server) =>
    transports.map((transport, at) => {
      const { name, endpoints } = server;
      const open = (options: Partial<EtcdOptions> = {}) =>
        (openers[at] as Open)({ endpoints, ...options });
      return { name: `${name} over ${transport}`, server, transport, open };
    }),
  );
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
