import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import { json } from "node:stream/consumers";
import { type Host, parseStoreUrl, readTls } from "../../infra/store-url.ts";
import { type Finding, judgePresence, judgeVersion, note, problem } from "./finding.ts";

interface Server {
  readonly address: string;

  /** Undefined if the server did not answer. */
  readonly answer: { readonly version: string; readonly isHealthy: boolean } | undefined;
}

/** Asks each server of the URL for its version and its health, which etcd tells over HTTP. */
export async function examineEtcd(url: string, signal: AbortSignal): Promise<readonly Finding[]> {
  const { scheme, network } = parseStoreUrl(url);
  const { hosts = [] } = network ?? {};
  const tls = ["etcds", "etcd+https"].includes(scheme) && network ? readTls(network) : undefined;
  const ask = async (host: Host): Promise<Server> => {
    const address = `${host.host.includes(":") ? `[${host.host}]` : host.host}:${host.port ?? 2_379}`;
    const read = async (path: string) => {
      const request = tls
        ? https.get(`https://${address}${path}`, { ...tls, signal })
        : http.get(`http://${address}${path}`, { signal });
      const [response] = await once(request, "response");
      return Object(await json(response));
    };
    const answer = Promise.all([read("/version"), read("/health")]).then(
      ([{ etcdserver }, { health }]) => ({ version: etcdserver, isHealthy: health === "true" }),
      () => undefined,
    );
    return { address, answer: await answer };
  };
  const servers = await Promise.all(hosts.map(ask));
  const addresses = servers.map(({ address }) => address);
  const away = servers.filter(({ answer }) => !answer).map(({ address }) => address);
  if (away.length === servers.length) {
    const why =
      "no server tells its version and health over HTTP: a proxy, or HTTP has another port";
    return [note("version", why, "ask each server with etcdctl endpoint status")];
  }
  return [judgePresence(addresses, away), ...judgeVersions(servers), ...judgeHealth(servers)];
}

function judgeVersions(servers: readonly Server[]): readonly Finding[] {
  const versions = new Set(servers.flatMap(({ answer }) => (answer ? [answer.version] : [])));
  return [...versions].map((version) => judgeVersion("etcd", version, "3.4"));
}

function judgeHealth(servers: readonly Server[]): readonly Finding[] {
  const ill = servers.filter(({ answer }) => answer?.isHealthy === false);
  if (ill.length === 0) return [];
  const names = ill.map(({ address }) => address).join(", ");
  const cure =
    'run "etcdctl alarm list": under NOSPACE, compact, defragment, then "etcdctl alarm disarm"';
  return [problem("health", `not healthy: ${names}`, cure)];
}
