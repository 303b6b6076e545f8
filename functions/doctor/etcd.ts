import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import { text } from "node:stream/consumers";
import { hostLiteral } from "../../core/stores/host-literal.ts";
import { type Host, parseStoreUrl, readTls } from "../../infra/store-url.ts";
import { type Finding, judgePresence, judgeVersion, note, problem } from "./finding.ts";

interface Server {
  readonly address: string;

  /** Undefined if the server did not answer. */
  readonly answer: Answer | undefined;
}

interface Answer {
  readonly version: string;
  readonly isHealthy: boolean;

  /** The share of the quota that the database's file takes. NaN if the server does not tell. */
  readonly used: number;
}

/** Asks each server of the URL for its version, its health and its size, which etcd tells over HTTP. */
export async function examineEtcd(url: string, signal: AbortSignal): Promise<readonly Finding[]> {
  const { scheme, network } = parseStoreUrl(url);
  const { hosts = [] } = network ?? {};
  const tls = ["etcds", "etcd+https"].includes(scheme) && network ? readTls(network) : undefined;
  const ask = async (host: Host): Promise<Server> => {
    const address = `${hostLiteral(host.host)}:${host.port ?? 2_379}`;
    const read = async (path: string) => {
      const request = tls
        ? https.get(`https://${address}${path}`, { ...tls, signal })
        : http.get(`http://${address}${path}`, { signal });
      const [response] = await once(request, "response");
      return text(response);
    };
    const metrics = read("/metrics").catch(() => "");
    const answer = Promise.all([read("/version"), read("/health"), metrics]).then(
      ([version, health, metrics]): Answer => ({
        version: JSON.parse(version).etcdserver,
        isHealthy: JSON.parse(health).health === "true",
        used: metric(metrics, "etcd_mvcc_db_total_size_in_bytes") / metric(metrics, QUOTA),
      }),
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
  return [
    judgePresence(addresses, away),
    ...judgeVersions(servers),
    ...judgeHealth(servers),
    ...judgeSize(servers),
  ];
}

const QUOTA = "etcd_server_quota_backend_bytes";

function metric(metrics: string, name: string): number {
  return Number(new RegExp(`^${name} (\\S+)`, "m").exec(metrics)?.[1] ?? Number.NaN);
}

/** Without space, etcd refuses locks and stock. */
function judgeSize(servers: readonly Server[]): readonly Finding[] {
  const full = servers.filter(({ answer }) => answer && answer.used > 0.8);
  if (full.length === 0) return [];
  const names = full.map(({ address, answer }) => {
    return `${Math.round(100 * (answer?.used ?? 0))} % of the quota of ${address}`;
  });
  const cure = "compact and defragment, or raise --quota-backend-bytes";
  return [note("space", `${names.join(", ")} is used: without space, etcd refuses writes`, cure)];
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
