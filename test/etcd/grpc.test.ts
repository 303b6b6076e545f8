import { once } from "node:events";
import { constants } from "node:http2";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { describe, expect, test } from "vitest";
import { get, put } from "../../core/stores/etcd/client/etcd.ts";
import { Frames, toFrame } from "../../core/stores/etcd/client/frames.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";
import {
  RangeResponse,
  TxnResponse,
  WatchResponse,
} from "../../core/stores/etcd/client/messages.ts";
import { always } from "../support/etcd-under-test.ts";
import { answer, FakeGrpc, refuse } from "../support/fake-grpc.ts";
import { until } from "../support/until.ts";

const txn = TxnResponse.encode({ header: { revision: "7" }, succeeded: true }).finish();
const range = RangeResponse.encode({ header: { revision: "7" } }).finish();

const write = always(put("a", ""));

const unavailable = { code: "STORE_UNAVAILABLE", retryable: true };
const unknown = { code: "UNKNOWN_OUTCOME", retryable: true };
const refused = { code: "STORE_REFUSED", retryable: false };

test("a message may come in chunks of any size, and several in one chunk", () => {
  const messages = ["", "a", "b".repeat(300)].map((text) => Buffer.from(text));
  const bytes = Buffer.concat(messages.map(toFrame));
  for (const size of [1, 2, 4, 5, 6, 7, 100, bytes.length]) {
    const frames = new Frames();
    const found: Uint8Array[] = [];
    for (let at = 0; at < bytes.length; at += size) {
      found.push(...frames.take(bytes.subarray(at, at + size)));
    }
    expect(found.map(String)).toEqual(messages.map(String));
  }
});

describe("an answer", () => {
  test("may come in chunks", async () => {
    await using server = await FakeGrpc.behaving((stream) => answer(stream, [txn], { chunks: 2 }));
    await using etcd = server.client();
    expect(await etcd.txn(write)).toMatchObject({ succeeded: true, revision: 7n });
  });

  test("with a status of etcd is a refusal, with its text decoded", async () => {
    await using server = await FakeGrpc.behaving((stream) => refuse(stream, 3, "etcdserver: 5%25"));
    await using etcd = server.client();
    const message = expect.stringContaining("etcdserver: 5%");
    await expect(etcd.txn(write)).rejects.toMatchObject({ ...refused, message });
  });

  test.each([
    ["without a status", [txn], {}, unknown],
    ["without a message", [], { "grpc-status": "0" }, unknown],
    [
      "with a message that is none of etcd's",
      [Buffer.from([0xff])],
      { "grpc-status": "0" },
      unknown,
    ],
  ])("%s leaves the outcome open", async (_, messages, trailers, expected) => {
    await using server = await FakeGrpc.behaving((stream) => {
      stream.respond(
        { ":status": 200, "content-type": "application/grpc" },
        { waitForTrailers: true },
      );
      stream.on("wantTrailers", () => stream.sendTrailers(trailers));
      stream.end(Buffer.concat(messages.map(toFrame)));
    });
    await using etcd = server.client();
    await expect(etcd.txn(write)).rejects.toMatchObject(expected);
  });

  test.each([
    [503, "text/plain", unknown],
    [429, "text/plain", unknown],
    [404, "text/plain", refused],
    [200, "text/html", refused],
  ])("of another server, HTTP %i %s, is none of etcd's", async (status, type, expected) => {
    await using server = await FakeGrpc.behaving((stream) => {
      stream.respond({ ":status": status, "content-type": type });
      stream.end("<html>not here</html>");
    });
    await using etcd = server.client();
    const error = await etcd.txn(write).catch((reason) => reason);
    expect(error).toMatchObject(expected);
    expect(`${error.message} ${error.cause?.message}`).toContain(`HTTP ${status}`);
  });
});

describe("a request that the server has certainly not processed", () => {
  test("because its stream was refused, is sent again", async () => {
    await using server = await FakeGrpc.behaving((stream, count) => {
      if (count === 0) stream.close(constants.NGHTTP2_REFUSED_STREAM);
      else answer(stream, [txn]);
    });
    await using etcd = server.client();
    expect(await etcd.txn(write)).toMatchObject({ succeeded: true });
  });

  test.each([0, 11])(
    "because a GOAWAY with code %i is of older streams, is sent again",
    async (code) => {
      await using server = await FakeGrpc.behaving((stream, count) => {
        if (count === 1) stream.session?.goaway(code, 1);
        else answer(stream, [txn]);
      });
      await using etcd = server.client();
      await etcd.txn(write);
      await etcd.txn(write);
      expect(server.sessions).toHaveLength(2);
    },
  );

  test("because the server has never answered the connection, does not leave the outcome open", async () => {
    const silent = createServer((socket) =>
      socket.on("data", () => socket.destroy()).on("error", () => {}),
    );
    await once(silent.listen(0, "127.0.0.1"), "listening");
    const endpoint = `127.0.0.1:${(silent.address() as AddressInfo).port}`;
    await using etcd = etcdClient({ endpoints: [endpoint] });
    await expect(etcd.txn(write)).rejects.toMatchObject(unavailable);
    silent.close();
  });
});

describe("the outcome of a write is open", () => {
  test.each([
    constants.NGHTTP2_NO_ERROR,
    constants.NGHTTP2_INTERNAL_ERROR,
    constants.NGHTTP2_CANCEL,
    constants.NGHTTP2_ENHANCE_YOUR_CALM,
  ])("when its stream is reset with code %i", async (code) => {
    await using server = await FakeGrpc.behaving((stream) => stream.close(code));
    await using etcd = server.client();
    await expect(etcd.txn(write)).rejects.toMatchObject(unknown);
  });

  test.each([0, 2, constants.NGHTTP2_REFUSED_STREAM])(
    "when the connection ends after a GOAWAY with code %i that includes it",
    async (code) => {
      await using server = await FakeGrpc.behaving((stream) => {
        stream.session?.goaway(code, 2 ** 31 - 1);
        stream.session?.destroy();
      });
      await using etcd = server.client();
      await expect(etcd.txn(write)).rejects.toMatchObject(unknown);
    },
  );
});

describe("a GOAWAY", () => {
  test("lets pending calls end, and sends later ones over a new connection", async () => {
    const first = Promise.withResolvers<() => void>();
    await using server = await FakeGrpc.behaving((stream, count) => {
      if (count > 0) return answer(stream, [txn]);
      stream.session?.goaway(0, 2 ** 31 - 1);
      first.resolve(() => answer(stream, [txn]));
    });
    await using etcd = server.client();
    const pending = etcd.txn(write);
    const end = await first.promise;
    // The server may refuse this one on the old connection.
    await etcd.txn(write);
    expect(server.sessions).toHaveLength(2);
    end();
    expect(await pending).toMatchObject({ succeeded: true });
  });

  test("moves watches to a new connection", async () => {
    const created = WatchResponse.encode({ header: { revision: "3" }, created: true }).finish();
    await using server = await FakeGrpc.behaving((stream) => {
      stream.respond({ ":status": 200, "content-type": "application/grpc" });
      stream.on("data", () => stream.write(toFrame(created)));
    });
    await using etcd = server.client();
    let readies = 0;
    etcd.watch("a", {
      ready() {
        readies += 1;
      },
      changed() {},
    });
    await until(() => readies === 1);
    server.sessions[0]?.goaway(0, 2 ** 31 - 1);
    await until(() => readies === 2);
    expect(server.sessions).toHaveLength(2);
  });
});

test("an aborted call resets its stream", async () => {
  const reset = Promise.withResolvers<number>();
  const begun = Promise.withResolvers<void>();
  await using server = await FakeGrpc.behaving((stream) => {
    stream.on("close", () => reset.resolve(stream.rstCode));
    begun.resolve();
  });
  await using etcd = server.client();
  const controller = new AbortController();
  const call = etcd.range(get("a"), controller.signal);
  call.catch(() => {});
  await begun.promise;
  controller.abort(new Error("enough"));
  await expect(call).rejects.toThrow("enough");
  expect(await reset.promise).toBe(constants.NGHTTP2_CANCEL);
});

test("more calls than the server allows at once wait for their turn on one connection", async () => {
  let open = 0;
  let most = 0;
  await using server = await FakeGrpc.behaving((stream) => {
    most = Math.max(most, ++open);
    stream.on("close", () => {
      open -= 1;
    });
    setImmediate(() => answer(stream, [range]));
  }, 10);
  await using etcd = server.client({ timeout: "1m" });
  const calls = Array.from({ length: 500 }, () => etcd.range(get("a")));
  expect(await Promise.all(calls)).toHaveLength(500);
  expect(most).toBeLessThanOrEqual(10);
  expect(server.sessions).toHaveLength(1);
});

test("a connection is made once for all calls", async () => {
  await using server = await FakeGrpc.behaving((stream) => answer(stream, [range]));
  await using etcd = server.client();
  await Promise.all(Array.from({ length: 20 }, () => etcd.range(get("a"))));
  expect(server.sessions).toHaveLength(1);
});

test("a client that is closed at once makes no connection", async () => {
  await using server = await FakeGrpc.behaving((stream) => answer(stream, [range]));
  const etcd = server.client();
  const reading = etcd.range(get("a"));
  const renewing = etcd.keepAlive(7n);
  await etcd.close();
  await expect(reading).rejects.toMatchObject({ code: "STORE_CLOSED" });
  await expect(renewing).rejects.toMatchObject({ code: "STORE_CLOSED" });
  // A connection that was made in vain would have come first.
  await using other = server.client();
  await other.range(get("a"));
  expect(server.sessions).toHaveLength(1);
});
