import { afterEach, describe, expect, test, vi } from "vitest";
import { issueFence } from "../../core/lock/fence.ts";
import { get, type KeyChange, put } from "../../core/stores/etcd/client/etcd.ts";
import { etcdGatewayClient, type GatewayOptions } from "../../core/stores/etcd/client/gateway.ts";
import { guardedWrite } from "../../core/stores/etcd/client/guarded.ts";
import { ownerByKey } from "../../core/stores/etcd/client/names.ts";
import type { Fetch } from "../../core/stores/fetch.ts";
import { always } from "../support/etcd-under-test.ts";
import { until } from "../support/until.ts";

type Sent = { readonly url: string; readonly request: Parameters<Fetch>[1] };

/** Makes a gateway client whose fetch returns this answer, and collects the requests. */
function answering(
  answer: (sent: Sent) => Response | Promise<Response>,
  options?: Partial<GatewayOptions>,
) {
  const sent: Sent[] = [];
  const fetch: Fetch = async (url, request) => {
    sent.push({ url, request });
    return answer({ url, request });
  };
  return { etcd: etcdGatewayClient({ endpoints: ["etcd.test:2379"], fetch, ...options }), sent };
}

const header = { revision: "7" };

const json = (message: unknown, status = 200) => new Response(JSON.stringify(message), { status });

describe("a request to the gateway", () => {
  test("is a POST of JSON that follows no redirect", async () => {
    const { etcd, sent } = answering(() => json({ header }));
    expect((await etcd.range(get("é"))).revision).toBe(7n);
    expect(sent).toMatchObject([
      {
        url: "http://etcd.test:2379/v3/kv/range",
        request: {
          method: "POST",
          headers: { "Content-Type": "application/json", "Grpc-Metadata-hasleader": "true" },
          body: '{"key":"w6k="}',
          redirect: "manual",
        },
      },
    ]);
    expect(sent[0]?.request.headers).not.toHaveProperty("Authorization");
  });

  test("uses TLS if the options require it", async () => {
    const { etcd, sent } = answering(() => json({ header }), { tls: {} });
    await etcd.range(get("a"));
    expect(sent[0]?.url).toBe("https://etcd.test:2379/v3/kv/range");
  });

  test("carries the token of the login", async () => {
    const { etcd, sent } = answering(() => json({ header, token: "abc.1" }), {
      user: "shop",
      password: "pw",
    });
    await Promise.all([etcd.range(get("a")), etcd.keepAlive(1n)]);
    expect(sent.map(({ url }) => new URL(url).pathname)).toEqual([
      "/v3/auth/authenticate",
      "/v3/kv/range",
      "/v3/lease/keepalive",
    ]);
    expect(sent[0]?.request.body).toBe('{"name":"shop","password":"pw"}');
    expect(sent[0]?.request.headers).not.toHaveProperty("Authorization");
    expect(sent[1]?.request.headers).toMatchObject({ Authorization: "abc.1" });
  });
});

test("a failure is read to the end of its JSON, and no further", async () => {
  const chunks = ['{"error":"etcdserver: a","message":"etcd', 'server: a","code":3}'];
  const ended = Promise.withResolvers<string>();
  const body = new ReadableStream({
    pull(controller) {
      const chunk = chunks.shift();
      if (chunk !== undefined) controller.enqueue(new TextEncoder().encode(chunk));
    },
    cancel: () => ended.resolve("cancelled"),
  });
  const { etcd } = answering(() => new Response(body, { status: 400 }));
  await expect(etcd.range(get("a"))).rejects.toMatchObject({ code: "STORE_REFUSED" });
  expect(await ended.promise).toBe("cancelled");
});

describe("an answer", () => {
  const refused = "STORE_REFUSED";
  const unavailable = "STORE_UNAVAILABLE";
  const unknown = "UNKNOWN_OUTCOME";
  const stranger = "this is not etcd's JSON API";

  test.each([
    [
      "of 3.4's",
      400,
      { error: "etcdserver: a", message: "etcdserver: a", code: 3 },
      refused,
      "etcdserver: a",
    ],
    ["of 3.5's", 400, { code: 3, message: "etcdserver: a" }, refused, "etcdserver: a"],
    [
      "within a stream",
      503,
      { error: { grpc_code: 14, message: "etcdserver: no leader" } },
      unavailable,
      "no leader",
    ],
    [
      "that may come too late",
      503,
      { code: 14, message: "etcdserver: request timed out" },
      unknown,
      "",
    ],
    ["of gRPC's own", 429, { code: 8, message: "memory limit exceeded" }, unknown, ""],
    ["of a proxy without etcd", 502, "<html>Bad Gateway</html>", unknown, ""],
    ["of a proxy that has had enough", 429, "slow down", unknown, ""],
    ["of an etcd without gateway", 404, "404 page not found\n", refused, stranger],
    ["of another service", 403, { message: "Forbidden" }, refused, stranger],
    ["of a portal", 200, "<html>Welcome</html>", refused, stranger],
    ["of a service that likes everything", 200, {}, refused, stranger],
    ["without anything", 200, "", refused, stranger],
    ["with nothing", 200, null, refused, stranger],
    ["that leads elsewhere", 302, "", refused, stranger],
  ])("%s is told apart (%i)", async (_, status, body, code, text) => {
    const answer = typeof body === "string" ? body : JSON.stringify(body);
    const { etcd, sent } = answering(() => new Response(answer, { status }));
    await expect(etcd.txn(always(put("a", "")))).rejects.toMatchObject({
      code,
      message: expect.stringContaining(text),
    });
    const ofReads = code === unknown ? unavailable : code;
    await expect(etcd.range(get("a"))).rejects.toMatchObject({ code: ofReads });
    await expect(etcd.keepAlive(1n)).rejects.toMatchObject({ code: ofReads });
    expect(sent.filter(({ url }) => url.endsWith("/kv/txn"))).toHaveLength(1);
  });

  test("that is long and not from etcd is quoted in part", async () => {
    const { etcd } = answering(() => new Response("<p>".repeat(10_000), { status: 404 }));
    const error = await etcd.range(get("a")).catch((reason: Error) => reason);
    expect((error as Error).message.length).toBeLessThan(200);
  });

  test("that breaks off leaves the outcome open", async () => {
    const { etcd } = answering(() => new Response(stream(['{"header":', new Error("reset")])));
    await expect(etcd.txn(always(put("a", "")))).rejects.toMatchObject({ code: unknown });
    await expect(etcd.range(get("a"))).rejects.toMatchObject({ code: unavailable });
  });

  test("to a keepalive without a ttl means that the lease does not exist", async () => {
    const { etcd } = answering(() => json({ result: { header, ID: "1" } }));
    expect(await etcd.keepAlive(1n)).toBeUndefined();
  });
});

/** Makes a body that comes in these chunks, and breaks at an error. */
function stream(chunks: readonly (string | Uint8Array | Error)[], { close = true } = {}) {
  return new ReadableStream<Uint8Array>({
    async start(controller) {
      for (const chunk of chunks) {
        await Promise.resolve();
        if (chunk instanceof Error) return controller.error(chunk);
        controller.enqueue(typeof chunk === "string" ? new TextEncoder().encode(chunk) : chunk);
      }
      if (close) controller.close();
    },
  });
}

describe("a watch through the gateway", () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  const line = (result: object) => `${JSON.stringify({ result: { header, ...result } })}\n`;
  const event = (key: string, mod_revision: number) => ({
    kv: { key: Buffer.from(key).toString("base64"), mod_revision: String(mod_revision) },
  });

  function watching(answers: (() => Response)[]) {
    const changes: KeyChange[] = [];
    let readies = 0;
    const never = () => new Promise<Response>(() => {});
    const { etcd, sent } = answering(() => answers.shift()?.() ?? never());
    const stop = etcd.watch("a", {
      ready() {
        readies += 1;
      },
      changed: (more) => changes.push(...more),
    });
    return { etcd, sent, changes, stop, readies: () => readies };
  }

  test("is decoded from chunks of any size", async () => {
    const text =
      line({ created: true }) +
      line({ events: [event("日本", 1), event("😀", 2)] }) +
      "\r\n" +
      line({ events: [event("é", 3)] }).trimEnd();
    const bytes = new TextEncoder().encode(text);
    for (const size of [1, 2, 3, 7, 64, bytes.length]) {
      const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
        bytes.slice(at * size, (at + 1) * size),
      );
      const { etcd, changes, readies } = watching([() => new Response(stream(chunks))]);
      await until(() => changes.length === 3);
      expect(changes.map(({ key, modRevision }) => [key, modRevision])).toEqual([
        ["日本", 1n],
        ["😀", 2n],
        ["é", 3n],
      ]);
      expect(readies()).toBe(1);
      await etcd.close();
    }
  });

  test.each([
    ["was canceled", () => new Response(stream([line({ canceled: true, created: true })]))],
    ["has ended", () => new Response(stream([line({ created: true })]))],
    ["broke off", () => new Response(stream([line({ created: true }), new Error("reset")]))],
    ["was refused", () => json({ code: 14, message: "etcdserver: no leader" }, 503)],
    [
      "has an error in it",
      () => new Response(stream(['{"error":{"grpc_code":14,"message":"a"}}\n'])),
    ],
    ["is none", () => new Response("404 page not found", { status: 404 })],
    ["has no body", () => new Response(null)],
    [
      "found no connection",
      () => {
        throw new TypeError("fetch failed");
      },
    ],
  ])("that %s is made anew", async (_, broken) => {
    const whole = () => new Response(stream([line({ created: true })], { close: false }));
    const { etcd, sent, readies } = watching([broken, broken, whole]);
    await until(() => sent.length === 3 && readies() > 0);
    await etcd.close();
  });

  test("that is silent for 8 s is created again, and its request is aborted", async () => {
    vi.useFakeTimers();
    const silent = () => new Response(stream([line({ created: true })], { close: false }));
    const { etcd, sent, readies } = watching([silent, silent]);
    await vi.advanceTimersByTimeAsync(7_900);
    expect(sent).toHaveLength(1);
    expect(sent[0]?.request.signal.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(200);
    expect(sent[0]?.request.signal.aborted).toBe(true);
    expect(readies()).toBe(2);
    await etcd.close();
    expect(sent[1]?.request.signal.aborted).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("that is silent after an answer stays at its endpoint, and one that gets no answer does not", async () => {
    vi.useFakeTimers();
    const silent = () => new Response(stream([line({ created: true })], { close: false }));
    const answers = [silent, silent];
    const { etcd, sent } = answering(() => answers.shift()?.() ?? new Promise(() => {}), {
      endpoints: ["one.test:2379", "two.test:2379"],
    });
    etcd.watch("a", { ready() {}, changed() {} });
    await vi.advanceTimersByTimeAsync(3 * 8_100);
    const hosts = sent.map(({ url }) => new URL(url).hostname);
    expect(hosts.slice(0, 3)).toEqual([hosts[0], hosts[0], hosts[0]]);
    expect(hosts[3]).not.toBe(hosts[0]);
    await etcd.close();
  });

  test("that is stopped aborts its request, and reports no pending change", async () => {
    let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
    const body = new ReadableStream<Uint8Array>({
      start(opened) {
        controller = opened;
      },
    });
    const { etcd, sent, changes, stop, readies } = watching([() => new Response(body)]);
    const send = (text: string) => controller?.enqueue(new TextEncoder().encode(text));
    send(line({ created: true }));
    await until(() => readies() === 1);
    send(line({ events: [event("a", 1)] }) + line({ events: [event("a", 2)] }));
    stop();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(changes).toEqual([]);
    expect(sent).toHaveLength(1);
    expect(sent[0]?.request.signal.aborted).toBe(true);
    await etcd.close();
  });
});

describe("a guarded write", () => {
  const lockKey = "shop/report/1f";
  const fence = issueFence("report", 0, 5n, ownerByKey(lockKey));

  test("refuses a put into the lock's own queue, which would block the lock for ever", async () => {
    const { etcd, sent } = answering(() => json({ header, succeeded: true }));
    const late = put("shop/report/latest", "a");
    const nested = { op: "txn", txn: { when: [], do: [], otherwise: [late] } } as const;
    for (const op of [late, nested, put(lockKey, "a")]) {
      await expect(guardedWrite(etcd, fence, [op])).rejects.toThrow(RangeError);
    }
    expect(sent).toEqual([]);
    await guardedWrite(etcd, fence, [put("shop/report", "a"), put("shop/reports/latest", "a")]);
    expect(sent).toHaveLength(1);
  });

  test("refuses a fence of another store", async () => {
    const { etcd, sent } = answering(() => json({ header, succeeded: true }));
    const other = issueFence("report", 0, 5n, "mysql/1f");
    const refused = guardedWrite(etcd, other, [put("a", "b")]);
    await expect(refused).rejects.toMatchObject({ code: "FENCE_INVALID" });
    expect(sent).toEqual([]);
  });
});
