import { once } from "node:events";
import { Agent, request } from "node:https";
import { Readable } from "node:stream";
import type { EtcdTls } from "./etcd.ts";
import type { Fetch } from "./gateway.ts";

/** A fetch that trusts an authority of one's own and shows a certificate, as Node's own cannot. */
export function nodeFetch(tls: EtcdTls): Fetch {
  // A connection that has been idle may have been cut silently: after 4 s it is not used again, as in Node's own.
  const agent = new Agent({ ...tls, keepAlive: true, timeout: 4_000 });
  return async (url, { method, headers, body, signal }) => {
    const sent = request(url, { agent, method, headers, signal });
    // `once` hears of errors before the answer; the answer's body, of those during it.
    sent.on("error", () => {});
    sent.end(body);
    const [answer] = await once(sent, "response");
    return new Response(Readable.toWeb(answer), { status: answer.statusCode });
  };
}
