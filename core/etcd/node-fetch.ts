import { once } from "node:events";
import { text } from "node:stream/consumers";
import type { EtcdTls } from "./etcd.ts";
import type { Fetch } from "./gateway.ts";

/**
 * A fetch that trusts an authority of one's own and shows a certificate, as Node's own cannot; without `tls`, for http
 * alone. Either way, it has its first answer some 20 ms sooner than Node's own, which has more to load.
 */
export function nodeFetch(tls?: EtcdTls): Fetch {
  // To import node:http would load all of Node's own fetch, because of the WebSocket that it exports.
  const { Agent, request } = process.getBuiltinModule(tls ? "node:https" : "node:http");
  // A connection that has been idle may have been cut silently: after 4 s it is not used again, as in Node's own.
  const agent = new Agent({ ...tls, keepAlive: true, timeout: 4_000 });
  return async (url, { method, headers, body, signal }) => {
    const sent = request(url, { agent, method, headers, signal });
    // `once` hears of errors before the answer; the answer's body, of those during it.
    sent.on("error", () => {});
    sent.end(body);
    const [answer] = await once(sent, "response");
    return { status: answer.statusCode, body: answer, text: () => text(answer) };
  };
}
