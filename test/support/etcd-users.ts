import type { EtcdServer } from "./etcd-servers.ts";
import { OwnEtcd } from "./own-etcd.ts";
import { until } from "./until.ts";

export const PASSWORD = "canary-7f3a";

/** With the user root, who may do everything, and the user shop, who may use the keys with prefix "shop/". */
export async function startWithUsers(server: EtcdServer): Promise<OwnEtcd> {
  const own = await OwnEtcd.like(server);
  await until(() => hasClusterVersion(own));
  for (const name of ["root", "shop"]) {
    await ensured(own, "/v3/auth/user/add", { name, password: PASSWORD });
    await ensured(own, "/v3/auth/role/add", { name });
    await ensured(own, "/v3/auth/user/grant", { user: name, role: name });
  }
  const key = Buffer.from("shop/").toString("base64");
  const range_end = Buffer.from("shop0").toString("base64");
  const perm = { permType: "READWRITE", key, range_end };
  await ensured(own, "/v3/auth/role/grant", { name: "shop", perm });
  await own.post("/v3/auth/enable", {});
  return own;
}

/** Whether etcd knows the version of its cluster: it writes a log entry when it does, on a busy machine seconds after its start. */
async function hasClusterVersion({ endpoint }: OwnEtcd): Promise<boolean> {
  const answer = await fetch(`http://${endpoint}/version`);
  const { etcdserver, etcdcluster } = (await answer.json()) as Record<string, string>;
  const minorOf = (version = "") => version.split(".").slice(0, 2).join(".");
  return minorOf(etcdserver) === minorOf(etcdcluster);
}

/** Sends the request again when a busy etcd has timed out. The first one may have been executed. */
function ensured(own: OwnEtcd, path: string, message: object): Promise<unknown> {
  return until(() =>
    own.post(path, message).catch(({ message: why }: Error) => {
      if (/already/.test(why)) return true;
      if (!/request timed out/.test(why)) throw new Error(why);
      return undefined;
    }),
  );
}

/** Invalidates a user's tokens by a change of the password. Resolves to the number of log entries so far. */
export async function spoilTokens(own: OwnEtcd): Promise<number> {
  const { token } = await own.post("/v3/auth/authenticate", { name: "root", password: PASSWORD });
  const change = { name: "root", password: PASSWORD };
  await own.post("/v3/auth/user/changepw", change, String(token));
  return entries(own);
}

/** Returns the number of log entries: a token ends in the number of the entry of its login. Reads add none. */
export async function entries(own: OwnEtcd): Promise<number> {
  const { token } = await own.post("/v3/auth/authenticate", { name: "root", password: PASSWORD });
  return Number(String(token).split(".")[1]);
}
