import { connect, type Socket } from "node:net";
import { text as textOf } from "node:stream/consumers";
import { beforeAll, describe, expect, inject, onTestFinished, test } from "vitest";
import { createRuntime } from "../../core/steps/runtime.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { bearer } from "../../functions/http/auth.ts";
import { open } from "../../infra/open.ts";
import { READ_TOKEN, serving, TOKEN } from "../support/http.ts";
import {
  appOptions,
  BEFORE_LONGEST_CALL,
  effects,
  flow,
  gates,
  newKey,
  newSku,
  openBeforeTests,
  opened,
  serve,
  startPath,
  testSecrecy,
} from "../support/http-app.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryDatabase } from "../support/under-test.ts";
import { until, within } from "../support/until.ts";

openBeforeTests();

const databases = [...inject("sqlServers").slice(0, 1), ...inject("postgresServers")];

describe.each(databases)("the app without an answer of its store on $name", (server) => {
  /** An app over a wire that can be cut. */
  async function overWire(timeout: number) {
    const database = await temporaryDatabase(server);
    const proxy = await TcpProxy.to(database.options.port);
    const direct = await open(database.url);
    await migrate(direct.database);
    const url = new URL(database.url);
    url.port = String(proxy.port);
    const { journal, locks, inventory, close } = await open(url.href);
    onTestFinished(async () => {
      await proxy.close();
      await Promise.all([close(), direct.close()]);
      await database.drop();
    });
    const runtime = createRuntime({ journal, locks, workflows: [flow] });
    const app = await serving({ runtime, workflows: [flow], inventory, locks, timeout });
    await inventory.set({ sku: "a", quantity: 5, operationId: "set" });
    return { ...app, proxy, direct };
  }

  test("responds 503 when the store is unavailable, also at /ready, while /health is 200", async () => {
    const { ask, proxy, log } = await overWire(10_000);
    expect(await ask("GET", "/ready")).toMatchObject({ status: 200, body: { status: "ready" } });
    await proxy.close();
    const sale = await ask("POST", "/stock/a/decrement", { key: "k", body: { quantity: 1 } });
    expect(sale).toMatchObject({ status: 503, body: { code: "STORE_UNAVAILABLE" } });
    expect(Number(sale.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(log.at(-1)?.error).toContain("127.0.0.1");
    expect(sale.text).not.toContain("127.0.0.1");
    const run = await ask("POST", startPath, { key: "r", body: { does: "work" } });
    expect(run).toMatchObject({ status: 503, body: { code: "STORE_UNAVAILABLE" } });
    const ready = await ask("GET", "/ready");
    expect(ready).toMatchObject({ status: 503, body: { checks: { journal: "failed" } } });
    expect(Number(ready.headers.get("retry-after"))).toBeGreaterThan(0);
    expect((await ask("GET", "/health")).status).toBe(200);
  });

  test("responds 503 when the answer to a change is lost, and the same key gets the result", async () => {
    const { ask, proxy, direct } = await overWire(1_000);
    proxy.cut();
    const hanging = await within(BEFORE_LONGEST_CALL, ask("GET", "/ready"));
    expect(hanging).toMatchObject({ status: 503, body: { checks: { inventory: "failed" } } });
    const asking = { key: "order-1", body: { quantity: 2 } };
    /** On a busy machine, the time may be over before the request is sent. */
    const askInTime = (path: string, what: object) =>
      until(async () => {
        const answer = await within(BEFORE_LONGEST_CALL, ask("POST", path, what));
        return answer.body.code !== "NO_TIME" && answer;
      });
    const lost = await askInTime("/stock/a/decrement", asking);
    expect(lost).toMatchObject({ status: 503, body: { code: "UNKNOWN_OUTCOME" } });
    expect(Number(lost.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await ask("GET", "/stock/a")).toMatchObject({ status: 503, body: { code: "NO_TIME" } });
    const run = { key: "run-1", body: { does: "work" } };
    for (const path of [startPath, "/runs/run-1/signals/paid", "/runs/run-1/cancel"]) {
      const unknown = await askInTime(path, run);
      expect(unknown).toMatchObject({ status: 503, body: { code: "UNKNOWN_OUTCOME" } });
    }
    proxy.mend();
    const found = await until(async () => {
      const one = await ask("POST", "/stock/a/decrement", asking);
      return one.status === 200 && one;
    });
    expect(found.body.remaining).toBe(3);
    expect(await direct.inventory.get("a")).toMatchObject({ onHand: 3, sold: 2 });
  });

  test("responds 503 to a request without time left, and changes nothing", async () => {
    const { ask } = await serving({
      ...appOptions(),
      timeout: 1,
      authorize: async () => {
        await new Promise((resolve) => setTimeout(resolve, 20));
        return {};
      },
    });
    const key = newKey();
    const run = await ask("POST", startPath, { key, body: { does: "work" } });
    expect(run).toMatchObject({ status: 503, body: { code: "NO_TIME" } });
    expect(Number(run.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await ask("GET", `/stock/a`)).toMatchObject({ status: 503, body: { code: "NO_TIME" } });
    expect(await opened.journal.show(key)).toBeUndefined();
  });

  test("responds 429 to too many requests for one resource, and serves the others", async () => {
    const { ask } = await serve({ limits: { requests: 3, perKey: 1 } });
    const [key, other] = [newKey(), newKey()];
    gates.set(key, Promise.withResolvers<void>());
    const first = ask("POST", startPath, { key, body: { does: "gate" } });
    await until(() => effects.get(key));
    const second = await ask("POST", startPath, { key: other, body: { does: "work" } });
    expect(second).toMatchObject({ status: 429, body: { code: "TOO_MANY_REQUESTS" } });
    expect(Number(second.headers.get("retry-after"))).toBeGreaterThan(0);
    expect((await ask("GET", `/stock/${await newSku()}`)).status).toBe(200);
    gates.get(key)?.resolve();
    await first;
    expect((await ask("POST", startPath, { key: other, body: { does: "work" } })).status).toBe(200);
  });
});

describe("authorisation", () => {
  /** Every operation of the app, with a path that fits. */
  async function operations(url: string) {
    const response = await fetch(`${url}/openapi.json`, {
      headers: { authorization: `Bearer ${TOKEN}` },
    });
    const { paths } = (await response.json()) as {
      paths: Record<string, Record<string, { operationId: string }>>;
    };
    return Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId }]) => ({
        method: method.toUpperCase(),
        path: path.replace(/\{\w+\}/g, "x"),
        operationId,
      })),
    );
  }

  test("without `authorize` only /health is allowed", async () => {
    const all = await operations((await serve()).url);
    expect(all.length).toBeGreaterThan(13);
    const { authorize: _, ...rest } = { authorize: undefined, ...appOptions() };
    const { ask } = await serving({ ...rest, authorize: undefined as never });
    for (const { method, path, operationId } of all) {
      const { status, body } = await ask(method, path, { key: newKey() });
      if (operationId === "health") expect(status).toBe(200);
      else
        expect({ operationId, status, body }).toMatchObject({
          status: 403,
          body: { code: "FORBIDDEN" },
        });
    }
    for (const path of ["/", "/nix", "/stock/%ff", "/docs", "/docs/index.html"]) {
      expect((await ask("GET", path)).status).toBe(403);
    }
    expect((await ask("DELETE", "/health")).status).toBe(403);
  });

  test("missing and wrong credentials are a 401 before the body is read", async () => {
    const { ask, url, log } = await serve();
    for (const { method, path, operationId } of await operations(url)) {
      if (operationId === "health") continue;
      const { status, headers } = await ask(method, path, { token: "", key: newKey() });
      expect({ operationId, status }).toEqual({ operationId, status: 401 });
      expect(headers.get("www-authenticate")).toMatch(/^Bearer/);
    }
    const sku = await newSku();
    const wrong = ["wrong", `${TOKEN}x`, TOKEN.slice(1), TOKEN.toUpperCase(), `${TOKEN}, ${TOKEN}`];
    for (const token of wrong) {
      const asking = { key: newKey(), raw: "x".repeat(300_000), token };
      expect((await ask("POST", `/stock/${sku}/decrement`, asking)).status).toBe(401);
    }
    for (const authorization of [
      TOKEN,
      `Basic ${btoa(`a:${TOKEN}`)}`,
      "Bearer",
      `Bearer ${TOKEN} x`,
    ]) {
      const asking = { token: "", headers: { authorization } };
      expect((await ask("GET", `/stock/${sku}`, asking)).status).toBe(401);
    }
    expect(log.every(({ principal }) => principal === undefined || principal === "shop")).toBe(
      true,
    );
    expect((await ask("GET", `/stock/${sku}`)).body.onHand).toBe(10);
  });

  test("a read token does not allow writes", async () => {
    const { ask } = await serve();
    const sku = await newSku();
    const asking = { key: newKey(), body: { quantity: 1 }, token: READ_TOKEN };
    expect((await ask("GET", `/stock/${sku}`, { token: READ_TOKEN })).status).toBe(200);
    expect(await ask("POST", `/stock/${sku}/decrement`, asking)).toMatchObject({ status: 403 });
    expect((await ask("GET", `/stock/${sku}`)).body.onHand).toBe(10);
  });

  test("a hook decides by the operation, and a failing hook refuses", async () => {
    const asked: unknown[] = [];
    const hidden: unknown[] = [];
    const { ask } = await serve({
      onError: (...given) => void hidden.push(given),
      authorize: (request, about) => {
        asked.push(about);
        if (request.headers.has("x-fail")) throw "canary: no such issuer";
        return about.params.sku?.startsWith("mine") ? { principal: "me" } : "forbidden";
      },
    });
    const sale = { key: newKey(), body: { quantity: 1 } };
    expect((await ask("POST", "/stock/mine-7/decrement", sale)).status).toBe(404);
    expect((await ask("POST", "/stock/theirs/decrement", sale)).status).toBe(403);
    expect((await ask("GET", "/stock/-?sku=mine%2F7")).status).toBe(404);
    const about = { operation: "decrementStock", access: "write", params: { sku: "mine-7" } };
    expect(asked[0]).toEqual({ ...about, key: sale.key });
    await ask("POST", "/stock/mine-7/decrement", { ...sale, key: `"${sale.key}"` });
    expect(asked.at(-1)).toEqual(asked[0]);
    await ask("POST", "/stock/mine-7/decrement", { ...sale, key: "" });
    expect(asked.at(-1)).toEqual(about);
    const headers = { "x-fail": "1" };
    expect(hidden).toEqual([]);
    const refused = await ask("GET", "/stock/mine", { headers });
    expect(refused).toMatchObject({ status: 500, body: { code: "INTERNAL" } });
    const { requestId } = refused.body;
    expect(hidden).toEqual([["canary: no such issuer", { requestId, operation: "readStock" }]]);
  });

  test.each([undefined, null, false, true, 0, "", "unauthorized", { isAuthorized: false }])(
    "a hook that answers %j has granted nothing",
    async (verdict) => {
      const { ask } = await serve({ authorize: () => verdict as never });
      const sku = await newSku();
      const sale = { key: newKey(), body: { quantity: 1 } };
      for (const refused of [
        await ask("GET", `/stock/${sku}`),
        await ask("POST", `/stock/${sku}/decrement`, sale),
      ]) {
        expect(refused).toMatchObject({ status: 500, body: { code: "INTERNAL" } });
      }
      expect(await opened.inventory.get(sku)).toMatchObject({ sold: 0 });
    },
  );

  test("a hook that answers an array, or an instance of a class, has granted nothing", async () => {
    for (const verdict of [[], ["shop"], new Map(), new Error("no"), Response.error()]) {
      const { ask } = await serve({ authorize: () => verdict as never });
      expect(await ask("GET", "/stock/a")).toMatchObject({ status: 500 });
    }
  });

  test("a hook whose principal is not a text has authenticated nobody", async () => {
    const sku = await newSku();
    for (const principal of [undefined, null, "", 0, [], {}, Object]) {
      const { ask } = await serve({ authorize: () => ({ principal }) as never });
      const sale = { key: newKey(), body: { quantity: 1 } };
      const refused = await ask("POST", `/stock/${sku}/decrement`, sale);
      expect(refused).toMatchObject({ status: 401, body: { code: "UNAUTHENTICATED" } });
    }
    expect(await opened.inventory.get(sku)).toMatchObject({ sold: 0 });
  });

  test("a hook that answers {} has granted the request to a caller without a name", async () => {
    const { ask } = await serve({ authorize: () => ({}) });
    expect((await ask("GET", `/stock/${await newSku()}`)).status).toBe(200);
  });

  test("a hanging hook delays a request no longer than its timeout", async () => {
    const { ask } = await serve({ timeout: 100, authorize: () => new Promise(() => {}) });
    expect(await ask("GET", "/stock/a")).toMatchObject({ status: 503, body: { code: "NO_TIME" } });
  });

  test("a token whose principal is no text is refused", () => {
    const token = { token: "token-of-a-number", principal: 7 as never };
    expect(() => bearer([token])).toThrow("principal of bearer must be a string, not 7");
  });

  test("a token that is too short is refused", () => {
    expect(() => bearer(["short"])).toThrow(RangeError);
    expect(() => bearer(["with a space in the middle"])).toThrow(RangeError);
    // Clients send it in different bytes.
    expect(() => bearer(["pässwort-mit-umlaut"])).toThrow(RangeError);
  });
});

describe("invalid and hostile input", () => {
  const change = "/stock/hostile/restock";

  beforeAll(async () => {
    await opened.inventory.set({ sku: "hostile", quantity: 1, operationId: newKey() });
  });

  test.each([
    ["nothing", "", "INVALID"],
    ["half of it", '{"quantity": 1', "MALFORMED"],
    ["two of them", '{"quantity": 1}{"quantity": 1}', "MALFORMED"],
    ["with a byte order mark", '\ufeff{"quantity": 1}', "MALFORMED"],
    ["no UTF-8", new Uint8Array([0x22, 0xff, 0x22]), "MALFORMED"],
    ["NaN", '{"quantity": NaN}', "MALFORMED"],
    ["text for a number", '{"quantity": "1"}', "INVALID"],
    ["a fraction", '{"quantity": 1.5}', "INVALID"],
    ["nothing at all", '{"quantity": 0}', "INVALID"],
    ["less than nothing", '{"quantity": -1}', "INVALID"],
    ["too many", '{"quantity": 1000001}', "INVALID"],
    ["beyond 2^53", '{"quantity": 9007199254740993}', "INEXACT_NUMBER"],
    ["beyond 2^53 below nothing", '{"quantity": [{"a": -9007199254740993}]}', "INEXACT_NUMBER"],
    ["infinitely many", '{"quantity": 1e400}', "INEXACT_NUMBER"],
    ["null", "null", "INVALID"],
    ["a list", "[1]", "INVALID"],
    ["a member more", '{"quantity": 1, "isAdmin": true}', "INVALID"],
    ["a prototype", '{"quantity": 1, "__proto__": {"isAdmin": true}}', "FORBIDDEN_NAME"],
    ["a constructor", '{"quantity": 1, "constructor": {"prototype": {"a": 1}}}', "FORBIDDEN_NAME"],
    ["10,000 levels", "[".repeat(10_000) + "]".repeat(10_000), "TOO_DEEP"],
    ["120,000 levels, open", "[".repeat(120_000), "MALFORMED"],
  ])("a body of %s is a 400", async (_, raw, code) => {
    const { ask } = await serve();
    const refused = await ask("POST", change, { key: newKey(), raw });
    expect(refused).toMatchObject({ status: 400, body: { code } });
    expect(refused.text.length).toBeLessThan(2_000);
    expect(await opened.inventory.get("hostile")).toMatchObject({ onHand: 1 });
    expect(({} as { isAdmin?: boolean }).isAdmin).toBeUndefined();
  });

  test("names that reach a prototype do not reach a run", async () => {
    const { ask } = await serve();
    const raw = '{"does": "work", "more": [{"deep": {"__proto__": {"isAdmin": true}}}]}';
    const refused = await ask("POST", startPath, { key: newKey(), raw });
    expect(refused).toMatchObject({ status: 400, body: { code: "FORBIDDEN_NAME" } });
    expect(Object.keys(Object.prototype)).toEqual([]);
  });

  test("a slow body is a 408, and does not block later requests", async () => {
    const { url, ask, log } = await serve({ timeout: 200, limits: { perKey: 2 } });
    const answers = HALVES.map((half) => textOf(rawRequest(url, `POST ${change}`, half)));
    for (const answer of await Promise.all(answers)) {
      expect(answer).toMatch(/^HTTP\/1\.1 408 .*"code":"BODY_INCOMPLETE"/s);
    }
    expect(log).toMatchObject([{ status: 408 }, { status: 408 }]);
    await until(async () => (await ask("GET", "/stock/hostile")).status === 200);
  });

  test("bodies that are still arriving keep nobody from reading, and have limits of their own", async () => {
    const limits = { requests: 1, bodies: 1 };
    const { url, ask, log } = await serve({ bodyTimeout: 3_000, limits });
    const [half = ""] = HALVES;
    const answer = textOf(rawRequest(url, `POST ${change}`, half));
    const sale = { body: { quantity: 1 } };
    await until(async () => (await ask("POST", change, { key: newKey(), ...sale })).status === 429);
    expect((await ask("GET", "/stock/hostile")).status).toBe(200);
    // The time for a body is less than that for its request.
    expect(await answer).toMatch(/^HTTP\/1\.1 408 .*"code":"BODY_INCOMPLETE"/s);
    expect((await ask("POST", change, { key: newKey(), ...sale })).status).toBe(200);
    await opened.inventory.set({ sku: "hostile", quantity: 1, operationId: newKey() });
    expect(log.map(({ status }) => status)).toContain(408);
  });

  test("a client that disconnects during its body causes no server error", async () => {
    const { url, ask, log } = await serve({ limits: { bodies: 1 } });
    for (const half of HALVES) {
      log.length = 0;
      const socket = rawRequest(url, `POST ${change}`, half);
      const empty = () => ask("POST", change, { key: newKey(), body: {} });
      await until(async () => (await empty()).status === 429);
      log.length = 0;
      socket.destroy();
      await until(() => log.find(({ operation }) => operation === "restock"));
      expect(log.find(({ operation }) => operation === "restock")).toMatchObject({
        ...{ status: 408, code: "BODY_INCOMPLETE" },
      });
      expect((await ask("GET", "/stock/hostile")).status).toBe(200);
    }
  });

  test("a body above the limit is a 413 with and without a declared length, and a body at the limit is read", async () => {
    const { ask } = await serve({ bodyLimit: 1_000 });
    const padded = (bytes: number) => `{"quantity": 1}`.padEnd(bytes);
    const tooLarge = { status: 413, body: { code: "TOO_LARGE" } };
    const send = (raw: string | ReadableStream) => ask("POST", change, { key: newKey(), raw });
    expect(await send(padded(1_001))).toMatchObject(tooLarge);
    expect(await send(padded(3_000_000))).toMatchObject(tooLarge);
    expect(await send(new Blob([padded(200_000)]).stream())).toMatchObject(tooLarge);
    // It may be cut off before it has heard the answer.
    await send(new Blob([padded(9_000_000)]).stream()).catch(() => {});
    for (let i = 0; i < 3; i += 1) expect((await send(padded(1_000))).status).toBe(200);
    const byDefault = await serve();
    const key = newKey();
    expect((await byDefault.ask("POST", change, { key, raw: padded(262_145) })).status).toBe(413);
    expect((await byDefault.ask("POST", change, { key, raw: padded(262_144) })).status).toBe(200);
  });

  test("a body that is compressed or not declared as JSON is a 415", async () => {
    const { ask } = await serve();
    const send = (headers: Record<string, string>) =>
      ask("POST", change, { key: newKey(), raw: '{"quantity": 1}', headers });
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"]) {
      expect((await send({ "content-type": type })).body.code).toBe("NOT_JSON");
    }
    expect((await send({ "content-encoding": "gzip" })).body.code).toBe("ENCODED");
    for (const type of ["application/json; charset=utf-8", "application/vnd.shop+json"]) {
      expect((await send({ "content-type": type })).status).toBe(200);
    }
  });

  test("a path reaches only its own resource", async () => {
    const { url, ask, log } = await serve();
    for (const path of [
      "/stock/%ff",
      "/stock/%E0%A4%A",
      "/stock/%",
      "/stock/a%00b",
      "/stock/-?sku=%ff",
    ]) {
      expect({ path, status: (await ask("GET", path)).status }).toEqual({ path, status: 400 });
    }
    expect((await ask("GET", `/stock/${"x".repeat(256)}`)).status).toBe(400);
    expect((await ask("GET", `/stock/${"%C3%A9".repeat(128)}`)).status).toBe(400);
    for (const path of [
      "/stock/../../etc/passwd",
      "/stock/%2e%2e/%2e%2e/etc/passwd",
      "/stock/..%2f..%2fetc%2fshadow",
      "/docs/../../package.json",
      "/docs/..%2f..%2fpackage.json",
      "//stock/a",
    ]) {
      const answer = await textOf(rawRequest(url, `GET ${path}`, "Connection: close\r\n\r\n"));
      expect(answer).toMatch(/^HTTP\/1\.1 404 /);
      expect(answer).not.toMatch(/root:|"name": "lockstep"/);
    }
    await ask("GET", `/stock/${encodeURIComponent('a\r\nb" evil')}`);
    expect(JSON.stringify(log.at(-1))).not.toMatch(/[\r\n]/);
  });

  test("other methods are a 405 that names the allowed ones", async () => {
    const { ask } = await serve();
    const refused = await ask("PATCH", "/stock/a");
    expect(refused).toMatchObject({ status: 405, body: { code: "METHOD_NOT_ALLOWED" } });
    expect(refused.headers.get("allow")).toBe("GET, HEAD, PUT");
    const overridden = { headers: { "x-http-method-override": "GET" }, key: newKey(), body: {} };
    expect((await ask("POST", "/stock/a", overridden)).status).toBe(405);
    expect((await ask("HEAD", "/health")).status).toBe(200);
  });

  test("a valid request id is returned, and an invalid one is replaced", async () => {
    const { ask, log } = await serve();
    const idOf = async (id: string) =>
      (await ask("GET", "/health", { headers: { "x-request-id": id } })).headers.get(
        "x-request-id",
      );
    expect(await idOf("trace-7")).toBe("trace-7");
    expect(log.at(-1)?.requestId).toBe("trace-7");
    for (const id of ["<script>", "a b", "x".repeat(300)]) {
      expect(await idOf(id)).toMatch(/^[\da-f-]{36}$/);
    }
  });

  test("every response has headers that forbid browsers its use", async () => {
    const { ask } = await serve({ bodyLimit: 10 });
    const preflight = { origin: "https://evil.example", "access-control-request-method": "PUT" };
    const answers = [
      await ask("GET", "/health"),
      await ask("GET", "/nix"),
      await ask("PATCH", "/health"),
      await ask("GET", "/stock/a", { token: "" }),
      await ask("GET", "/health?a=1&a=2"),
      await ask("OPTIONS", "/stock/a", { token: "", headers: preflight }),
      await ask("POST", change, { key: "k", raw: "x".repeat(100) }),
    ];
    for (const { headers } of answers) {
      expect(headers.get("content-security-policy")).toContain("default-src 'none'");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("cache-control")).toBe("no-store");
      expect(headers.get("access-control-allow-origin")).toBeNull();
    }
  });
});

/** A connection with a request that no client would send. */
function rawRequest(url: string, line: string, rest: string): Socket {
  const { hostname, port, host } = new URL(url);
  const socket = connect(Number(port), hostname);
  const head = [`${line} HTTP/1.1`, `Host: ${host}`, `Authorization: Bearer ${TOKEN}`, rest];
  // Not ended: a client that says it has no more to send is taken for gone.
  socket.write(head.join("\r\n"));
  return socket;
}

/** Bodies of which the second half never comes. */
const HALVES = ["Content-Length: 14\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"].map(
  (rest) => `Idempotency-Key: half\r\nContent-Type: application/json\r\n${rest}`,
);

testSecrecy(100);
