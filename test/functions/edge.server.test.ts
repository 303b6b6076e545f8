import { readFileSync } from "node:fs";
import { Miniflare } from "miniflare";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { stockLock } from "../../core/inventory/inventory.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { type Etcd, get, put } from "../../core/stores/etcd/client/etcd.ts";
import type { GatewayOptions } from "../../core/stores/etcd/client/gateway.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";
import { etcdInventory } from "../../core/stores/etcd/inventory/index.ts";
import { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
import { lockedFetch } from "../../functions/edge/index.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { etcdctl, freshPrefix, queueOf } from "../support/etcd.ts";
import type { EtcdServer } from "../support/etcd-servers.ts";
import { always, singleEtcds } from "../support/etcd-under-test.ts";
import { PASSWORD, spoilTokens, startWithUsers } from "../support/etcd-users.ts";
import { until } from "../support/until.ts";
import { bundleForWeb } from "../support/web-bundle.ts";

const TOKEN = "a-token-of-our-own";

const servers = singleEtcds();
let workers: Miniflare;
let program: string;

/** For each server two Workers with the test's program, and the one of docs/edge.md. */
beforeAll(async () => {
  const [test, shop] = await Promise.all([
    bundleForWeb('export { default } from "./test/programs/edge.ts"'),
    bundleForWeb(exampleOfDocs()),
  ]);
  program = test.code;
  expect([...test.foreign, ...shop.foreign]).toEqual([]);
  const away = { endpoints: [`127.0.0.1:${await freePort()}`] };
  workers = new Miniflare({
    workers: servers.flatMap((server) => {
      const endpoints = [...server.endpoints];
      const bindings = { ETCD: { endpoints }, AWAY: away, TOKEN };
      return [
        {
          ...worker("one", server, program, bindings),
          serviceBindings: { NEXT: hostOf("other", server) },
        },
        worker("other", server, program, bindings),
        worker("shop", server, shop.code, { ETCD: endpoints[0] ?? "" }),
      ];
    }),
  });
  await workers.ready;
});

afterAll(() => workers.dispose());

type Bindings = Record<string, string | GatewayOptions>;

function hostOf(which: string, { name }: EtcdServer): string {
  return `${which}.${name.replaceAll(/[^\w.]/g, "-")}.test`;
}

function worker(which: string, server: EtcdServer, contents: string, bindings: Bindings) {
  const name = hostOf(which, server);
  return {
    name,
    routes: [`${name}/*`],
    bindings,
    modules: [{ type: "ESModule" as const, path: "worker.mjs", contents }],
    compatibilityDate: "2026-07-01",
    // Not nodejs_compat: there is nothing of Node's.
    compatibilityFlags: ["enable_request_signal"],
  };
}

function exampleOfDocs(): string {
  const page = readFileSync(new URL("../../docs/edge.md", import.meta.url), "utf8");
  const [, code = ""] = /^```js\n(.*?lockstep\/edge.*?)^```/ms.exec(page) ?? [];
  return code;
}

describe.each(servers)("a Worker, and $name", (server: EtcdServer) => {
  let etcd: Etcd;
  let locks: LockStore;

  beforeAll(() => {
    etcd = etcdClient({ endpoints: server.endpoints });
    locks = etcdLocks(etcd);
  });

  afterAll(async () => {
    await locks.close();
    await etcd.close();
  });

  const call = (path: string, init?: Init, which = "one") =>
    workers.dispatchFetch(`http://${hostOf(which, server)}${path}`, init);

  /** Calls again while etcd does not answer within a try-lock's time, as it may on a busy machine. */
  const callUntilAnswered = (path: string, which?: string) =>
    until(async () => {
      const response = await call(path, undefined, which);
      return response.status !== 503 && response;
    });

  const read = async (key: string) => (await etcd.range(get(key))).kvs[0]?.value;

  /** Once somebody holds a lock that goes on when `go` is called. */
  const holding = async (name: string, value: string) => {
    const answering = call(`/hold?name=${name}&value=${value}`);
    const [key] = await until(async () => {
      const queue = await queueOf(etcd, name);
      return queue.length > 0 && queue;
    });
    const go = () => etcd.txn(always(put(`${name}-go`, "")));
    return { answering, key, go };
  };

  test("writes under a lock that is released before the response, with rising fences", async () => {
    const name = freshPrefix();
    const fences: string[] = [];
    for (const value of ["first", "second"]) {
      const response = await call(`/write?name=${name}&value=${value}`);
      expect(await queueOf(etcd, name)).toEqual([]);
      expect(await read(`${name}-state`)).toBe(value);
      fences.push(((await response.json()) as { fence: string }).fence);
    }
    expect(fences).toEqual([...new Set(fences)].sort());
    expect(fences).toHaveLength(2);
  });

  test("keeps the lock of work that goes on after its time, until the lock expires", async () => {
    const name = freshPrefix();
    const end = Promise.withResolvers<void>();
    const options = { etcd: { endpoints: server.endpoints }, name, timeout: 2_000 };
    const handler = lockedFetch(options, async () => {
      await end.promise;
      return new Response("late");
    });
    const { status } = await handler(new Request("https://shop.test/"), {});
    expect(status).toBe(503);
    expect(await queueOf(etcd, name)).toHaveLength(1);
    end.resolve();
  });

  test("queues behind etcdctl, and excludes all other holders", async () => {
    const name = freshPrefix();
    const { answering, key, go } = await holding(name, "held");
    expect(await etcdctl(server, "get", "--prefix", `${name}/`)).toMatch(
      /\nedge\/[\w-]+ \{"since":.+\}\n/,
    );
    const refused = await until(async () => {
      const waiting = locks.lock(name, { ttl: 5_000, wait: 2_000 });
      const code = await waiting.then(
        () => "held",
        ({ code }) => code,
      );
      return code !== "UNKNOWN_OUTCOME" && code !== "STORE_UNAVAILABLE" && code;
    });
    expect(refused).toBe("LOCK_TIMEOUT");
    for (const which of ["one", "other"]) {
      const busy = await callUntilAnswered(`/write?name=${name}&value=taken`, which);
      expect(busy.status).toBe(423);
      expect(busy.headers.get("Retry-After")).toBe("1");
      expect(busy.headers.get("Content-Type")).toBe("application/problem+json");
      expect(await busy.json()).toMatchObject({ status: 423, code: "LOCK_TIMEOUT" });
    }
    await go();
    expect((await answering).status).toBe(200);
    expect(await read(`${name}-state`)).toBe("held");
    await until(async () => (await etcd.timeToLive(key?.lease ?? 0n)) === undefined);
    const ours = await locks.lock(name, { ttl: 5_000, wait: 60_000 });
    expect((await callUntilAnswered(`/write?name=${name}&value=taken`)).status).toBe(423);
    await ours.unlock();
    const later = (await (await callUntilAnswered(`/write?name=${name}&value=b`)).json()) as {
      fence: string;
    };
    expect(later.fence > String(ours.fence)).toBe(true);
  });

  test("is refused after its lock was lost, and has written nothing", async () => {
    const name = freshPrefix();
    await etcd.txn(always(put(`${name}-state`, "before")));
    const { answering, key, go } = await holding(name, "late");
    await etcd.revoke(key?.lease ?? 0n);
    await go();
    const refused = await answering;
    expect(refused.status).toBe(409);
    expect(await refused.json()).toMatchObject({ code: "FENCED_OUT" });
    expect(await read(`${name}-state`)).toBe("before");
  });

  test("cannot write while its response is streamed, because the lock is free by then", async () => {
    const name = freshPrefix();
    const streamed = await call(`/stream?name=${name}&value=late`);
    expect(streamed.status).toBe(200);
    const { code } = (await streamed.json()) as { code: string };
    // Refused by etcd, or cut off when the client was closed.
    expect(["FENCED_OUT", "STORE_CLOSED", "UNKNOWN_OUTCOME"]).toContain(code);
    expect(await read(`${name}-state`)).toBeUndefined();
    expect(await queueOf(etcd, name)).toEqual([]);
  });

  test("releases the lock when the body throws, and the runtime gets the error", async () => {
    const name = freshPrefix();
    const failed = await call(`/throw?name=${name}`);
    expect([failed.status, await failed.text()]).toEqual([
      500,
      expect.stringContaining("a fault of the body's own"),
    ]);
    expect(await queueOf(etcd, name)).toEqual([]);
  });

  test("leaves the queue when its client disconnects", async () => {
    const name = freshPrefix();
    const ours = await locks.lock(name, { ttl: 10_000, wait: 60_000 });
    expect(await (await call(`/leave?name=${name}&at=${name}/&keys=2`)).text()).toBe("left");
    await until(async () => (await queueOf(etcd, name)).length === 1);
    await ours.unlock();
  });

  test("finishes without its client, and releases the lock", async () => {
    const name = freshPrefix();
    expect(await (await call(`/leave?name=${name}&at=${name}-held&keys=1&value=done`)).text()).toBe(
      "left",
    );
    expect(await queueOf(etcd, name)).toHaveLength(1);
    await etcd.txn(always(put(`${name}-go`, "")));
    await until(async () => (await queueOf(etcd, name)).length === 0);
    expect(await read(`${name}-state`)).toBe("done");
  });

  test("responds at once when etcd is unavailable", async () => {
    const away = await call("/away?name=a");
    expect(away.status).toBe(503);
    // On a busy machine, workerd tells of the refused connection when the request's time is over.
    const code = expect.stringMatching(/^(STORE_UNAVAILABLE|UNKNOWN_OUTCOME)$/);
    expect(await away.json()).toMatchObject({ code });
  });

  test("works on after errors of etcd", async () => {
    const name = freshPrefix();
    const answer = await call(`/errors?name=${name}`);
    expect(await answer.json()).toEqual([false, false, false]);
    expect(await read(`${name}-state`)).toBe("3");
  });

  test("logs in once for all requests, and again when its token has expired", async () => {
    await using own = await startWithUsers(server);
    const who = { endpoints: [own.endpoint], user: "root", password: PASSWORD };
    const isolate = new Miniflare({ workers: [worker("users", server, program, { ETCD: who })] });
    onTestFinished(() => isolate.dispose());
    const ask = (path: string) => isolate.dispatchFetch(`http://${hostOf("users", server)}${path}`);
    let sent = 0;
    // Again after a 503: on a slow machine, etcd's check of a password takes longer than the request may wait.
    const write = async (name: string): Promise<number> => {
      sent += 1;
      const { status } = await ask(`/write?name=${name}&value=a`);
      return status === 503 ? write(name) : status;
    };
    const writes = () => Promise.all(["a", "b", "c", "d", "e"].map(write));
    const logins = async () => Number(await (await ask("/logins")).text());
    expect([await write("a"), await write("b"), ...(await writes())]).toEqual(Array(7).fill(200));
    expect(await logins()).toBe(1);
    await spoilTokens(own);
    sent = 0;
    expect(await writes()).toEqual(Array(5).fill(200));
    const after = await logins();
    expect(after).toBeGreaterThan(1);
    expect(after).toBeLessThanOrEqual(1 + sent);
    expect([...(await writes()), await logins()]).toEqual([...Array(5).fill(200), after]);
  });

  test("seals a fence, and opens no forged one", async () => {
    const answer = await call(`/seal?name=${freshPrefix()}`);
    expect(await answer.json()).toEqual({ isEqual: true, isRefused: true });
  });

  test("sells 25 units to 40 buyers at once with the example of docs/edge.md", async () => {
    const inventory = etcdInventory(etcd);
    await inventory.set({ sku: "teapot", quantity: 25, operationId: freshPrefix() });
    const answers = await Promise.all(Array.from({ length: 40 }, () => buy(freshPrefix())));
    const outcomes = Map.groupBy(answers, ({ outcome }) => outcome);
    expect(outcomes.get("applied")).toHaveLength(25);
    expect(outcomes.get("sold-out")).toHaveLength(15);
    expect(await inventory.get("teapot")).toMatchObject({ onHand: 0, sold: 25 });
    expect(await queueOf(etcd, stockLock("teapot"))).toEqual([]);
  });

  /** Again with the same key, as long as the answer says so: on a slow machine, the last ones wait for too long. */
  const buy = async (key: string): Promise<{ outcome: string }> => {
    const init = { method: "POST", headers: { "Idempotency-Key": key } };
    const answer = await call("/", init, "shop");
    if (!answer.headers.has("Retry-After")) return (await answer.json()) as { outcome: string };
    await answer.body?.cancel();
    return buy(key);
  };

  test("serves the HTTP app for stock", async () => {
    const sku = freshPrefix();
    const headers = { Authorization: `Bearer ${TOKEN}`, "Content-Type": "application/json" };
    const send = (path: string, method: string, key: string, quantity: number) =>
      call(`/stock/${sku}${path}`, {
        method,
        headers: { ...headers, "Idempotency-Key": `${sku}-${key}` },
        body: JSON.stringify({ quantity }),
      });
    expect((await call(`/stock/${sku}`)).status).toBe(401);
    expect((await send("", "PUT", "count", 2)).status).toBe(200);
    const sales = await Promise.all(
      ["a", "b", "c"].map((key) => send("/decrement", "POST", key, 1)),
    );
    expect(sales.map(({ status }) => status).sort()).toEqual([200, 200, 409]);
    const stock = await call(`/stock/${sku}`, { headers });
    expect(await stock.json()).toMatchObject({ onHand: 0, sold: 2 });
  });
});

interface Init {
  readonly method?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}
