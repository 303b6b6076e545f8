import { connect } from "node:http2";
import { put, remove, type TxnOp } from "../../core/stores/etcd/client/etcd.ts";
import { toFrame } from "../../core/stores/etcd/client/frames.ts";
import { RPCS } from "../../core/stores/etcd/client/rpcs.ts";
import { MessageCodec, plainBytes } from "../../core/stores/etcd/client/wire.ts";

const codec = new MessageCodec(plainBytes);

const requestOf = (op: TxnOp) => toFrame(RPCS.txn.encode(codec.txn({ when: [], do: [op] })));

/** Puts and deletes a key over HTTP/2 without a client, and reads no more of an answer than its status. */
export function rawHttp2(endpoint: string) {
  const session = connect(`http://${endpoint}`);
  const headers = {
    ":method": "POST",
    ":path": RPCS.txn.path,
    "content-type": "application/grpc",
    te: "trailers",
  };
  const send = (frame: Uint8Array) =>
    new Promise<void>((resolve, reject) => {
      let status: unknown;
      session
        .request(headers)
        .on("trailers", (trailers) => {
          status = trailers["grpc-status"];
        })
        .on("end", () => (status === "0" ? resolve() : reject(new Error(`status ${status}`))))
        .on("error", reject)
        .resume()
        .end(frame);
    });
  const frames = (key: string) => [requestOf(put(key, "")), requestOf(remove(key))] as const;
  const known = Array.from({ length: 16 }, (_, client) => frames(`bench/raw/${client}`));
  return {
    async putAndDelete(client: number) {
      for (const frame of known[client] ?? []) await send(frame);
    },
    close: () => session.close(),
  };
}
