import { checkOpening } from "../../lock/checks.ts";
import { checkOptionNames } from "../../lock/options.ts";
import { nodeFetch } from "../node-fetch.ts";
import { checkTlsOptions } from "../pem.ts";
import { secureContext } from "../secure-context.ts";
import { etcdGatewayClient, type GatewayOptions } from "./client/gateway.ts";
import { ETCD_OPTIONS, type EtcdStore, type EtcdStoreOptions, etcdStore } from "./store.ts";

/**
 * Opens etcd 3.4 or later through its JSON gateway, where gRPC is not to be had. Needs no package.
 *
 *     await using shop = await openEtcdGateway({ endpoints: ["127.0.0.1:2379"] });
 */
export async function openEtcdGateway(
  gateway: GatewayOptions,
  options: EtcdStoreOptions = {},
): Promise<EtcdStore> {
  checkOpening("openEtcdGateway", gateway, '{ endpoints: ["127.0.0.1:2379"] }');
  checkOptionNames("openEtcdGateway", options, ETCD_OPTIONS);
  checkTlsOptions(gateway.tls);
  const { tls, fetch = nodeFetch(tls), ...connection } = gateway;
  if (tls) secureContext("etcd", tls);
  // The certificates are the fetch's.
  const etcd = etcdGatewayClient({ ...connection, ...(tls && { tls: {} }), fetch });
  return etcdStore(etcd, options);
}
