import { once } from "node:events";
import {
  createServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import type { Etcd, EtcdOptions } from "../../core/stores/etcd/client/etcd.ts";
import { toFrame } from "../../core/stores/etcd/client/frames.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";

/** What a server does with the n-th stream, counted from 0. */
export type Behaviour = (stream: ServerHttp2Stream, count: number) => void;

/** A server of HTTP/2 that behaves as a test says. */
export class FakeGrpc {
  readonly sessions: ServerHttp2Session[] = [];
  readonly #server: Http2Server;

  private constructor(server: Http2Server) {
    this.#server = server.on("session", (session) => {
      this.sessions.push(session.on("error", () => {}));
    });
  }

  static async behaving(behave: Behaviour, maxConcurrentStreams = 100): Promise<FakeGrpc> {
    const server = createServer({ settings: { maxConcurrentStreams } });
    let count = 0;
    server.on("stream", (stream) => {
      stream.on("error", () => {});
      behave(stream, count++);
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    return new FakeGrpc(server);
  }

  get endpoint(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  client(options: Partial<EtcdOptions> = {}): Etcd {
    return etcdClient({ endpoints: [this.endpoint], ...options });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const session of this.sessions) session.destroy();
    this.#server.close();
  }
}

const HEADERS = { ":status": 200, "content-type": "application/grpc" };

/** Answers with messages and a status, in chunks of this many bytes. */
export function answer(
  stream: ServerHttp2Stream,
  messages: readonly Uint8Array[],
  { status = 0, text = "", chunks = 1_000 } = {},
): void {
  stream.respond(HEADERS, { waitForTrailers: true });
  stream.on("wantTrailers", () =>
    stream.sendTrailers({ "grpc-status": String(status), "grpc-message": text }),
  );
  const bytes = Buffer.concat(messages.map(toFrame));
  for (let at = 0; at < bytes.length; at += chunks) stream.write(bytes.subarray(at, at + chunks));
  stream.end();
}

/** Answers with a status alone. */
export function refuse(stream: ServerHttp2Stream, status: number, text: string): void {
  stream.respond(
    { ...HEADERS, "grpc-status": String(status), "grpc-message": text },
    { endStream: true },
  );
}
