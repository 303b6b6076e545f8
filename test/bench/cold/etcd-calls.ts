const { ETCD_ENDPOINT = "" } = process.env;
const { request } = process.getBuiltinModule("node:http");

/** Sends the requests of a lock without a client library. */
export async function handler(): Promise<object> {
  const ID = String(process.pid);
  await call("lease/grant", { ID, TTL: 32 });
  await call("kv/put", { key: btoa(`bare/${ID}`), lease: ID });
  await call("kv/deleterange", { key: btoa(`bare/${ID}`) });
  return {};
}

function call(path: string, message: object): Promise<void> {
  return new Promise((resolve, reject) => {
    const sent = request(`http://${ETCD_ENDPOINT}/v3/${path}`, { method: "POST" }, (answer) =>
      answer.on("end", resolve).resume(),
    );
    sent.on("error", reject).end(JSON.stringify(message));
  });
}
