import { afterAll, describe, expect, test } from "vitest";
import { type Etcd, get, put } from "../../core/stores/etcd/client/etcd.ts";
import { freePort } from "../../infra/servers/processes.ts";
import {
  always,
  anyLease,
  anyPrefix,
  etcdsUnderTest,
  nodeGatewayUnderTest,
  wireTo,
} from "../support/etcd-under-test.ts";
import { runScript } from "../support/script.ts";
import { stopTimers } from "../support/timers.ts";
import { pause, within } from "../support/until.ts";

type Call = (etcd: Etcd, key: string, lease: bigint, signal?: AbortSignal) => Promise<unknown>;

/** Every call of the client, on a key and a lease. */
const CALLS: Readonly<Record<string, Call>> = {
  txn: (etcd, key, _, signal) => etcd.txn(always(put(key, "")), signal),
  grant: (etcd, _, lease, signal) => etcd.grant(lease, 60, signal),
  revoke: (etcd, _, lease, signal) => etcd.revoke(lease, signal),
  range: (etcd, key, _, signal) => etcd.range(get(key), signal),
  keepAlive: (etcd, _, lease, signal) => etcd.keepAlive(lease, signal),
  timeToLive: (etcd, _, lease, signal) => etcd.timeToLive(lease, signal),
};

const READS = ["range", "keepAlive", "timeToLive"];
const calls = Object.entries(CALLS).map(([name, call]) => ({
  name,
  call,
  writes: !READS.includes(name),
}));

const onReads = calls.filter(({ writes }) => !writes);

/** Longer than the limit of a test: a call that waits for it fails the test. */
const TOO_LONG = 600_000;

/** Returns the error of a call, and its duration. */
async function failureOf(call: Promise<unknown>) {
  const start = performance.now();
  const error: unknown = await call.then(
    (answer) => new Error(`it answered ${String(answer)}`),
    (reason: unknown) => reason,
  );
  return { error, after: performance.now() - start };
}

describe.each([...(await etcdsUnderTest()), ...(await nodeGatewayUnderTest())])(
  "$name",
  ({ open, server, transport }) => {
    const direct = open();
    afterAll(() => direct.close());

    /** Makes a client whose first endpoint can be cut off; the second endpoint is the server itself. */
    async function overWire(options: Parameters<typeof open>[0] = {}) {
      const proxy = await wireTo(server);
      const etcd = open({
        endpoints: [`127.0.0.1:${proxy.port}`, ...server.endpoints],
        ...options,
      });
      // Connects first, so that the fault hits the call of the test.
      await etcd.range(get("a"));
      await etcd.keepAlive(anyLease());
      await pause(50);
      return {
        etcd,
        proxy,
        async [Symbol.asyncDispose]() {
          await etcd.close();
          await proxy.close();
        },
      };
    }

    const unknown = { code: "UNKNOWN_OUTCOME", retryable: true };
    const unavailable = { code: "STORE_UNAVAILABLE", retryable: true };

    describe("a lost answer", () => {
      test("to a transaction leaves the outcome open, and no write is repeated", async () => {
        let done = 0;
        for (let round = 0; round < 10; round += 1) {
          await using wire = await overWire();
          const key = `${anyPrefix()}a`;
          wire.proxy.loseNextAnswer();
          await expect(wire.etcd.txn(always(put(key, "")))).rejects.toMatchObject(unknown);
          const before = (await direct.range(get(key))).kvs;
          const { kvs } = await wire.etcd.range(get(key));
          // The server may execute the request between the two reads.
          if (before.length > 0) expect(kvs).toEqual(before);
          expect(kvs[0]?.version ?? 1n).toBe(1n);
          done += kvs.length;
        }
        // Not always: the server drops requests that it has not begun when the connection ends.
        expect(done).toBeGreaterThan(0);
      });

      test("to a grant or a revocation leaves the outcome open", async () => {
        await using wire = await overWire();
        const lease = anyLease();
        wire.proxy.loseNextAnswer();
        await expect(wire.etcd.grant(lease, 60)).rejects.toMatchObject(unknown);
        await direct.grant(lease, 60).catch(() => {});
        await using again = await overWire();
        again.proxy.loseNextAnswer();
        await expect(again.etcd.revoke(lease)).rejects.toMatchObject(unknown);
        await direct.revoke(lease);
      });

      test.each(onReads)("to $name is requested again from another endpoint", async ({ call }) => {
        const [key, lease] = [`${anyPrefix()}a`, anyLease()];
        await direct.txn(always(put(key, "")));
        await direct.grant(lease, 60);
        await using wire = await overWire();
        wire.proxy.loseNextAnswer();
        // Other tests write to the same server in between.
        const apart = (answer: unknown) =>
          answer instanceof Object ? { ...answer, revision: undefined } : answer;
        const told = await call(wire.etcd, key, lease);
        expect(apart(told)).toEqual(apart(await call(direct, key, lease)));
        await direct.revoke(lease);
      });

      test.each(onReads)("to $name is requested again from a single endpoint", async ({ call }) => {
        await using proxy = await wireTo(server);
        await using etcd = open({ endpoints: [`127.0.0.1:${proxy.port}`] });
        await etcd.range(get("a"));
        await etcd.keepAlive(anyLease());
        await pause(50);
        proxy.loseNextAnswer();
        const lease = anyLease();
        await direct.grant(lease, 60);
        expect(await call(etcd, "a", lease)).toBeDefined();
        await direct.revoke(lease);
      });
    });

    describe("a server that does not answer", () => {
      test.concurrent.each(calls)("fails $name at the timeout", async ({ call, writes }) => {
        await using proxy = await wireTo(server);
        await using etcd = open({ endpoints: [`127.0.0.1:${proxy.port}`], timeout: 4_000 });
        await etcd.keepAlive(anyLease());
        await etcd.range(get("a"));
        proxy.cut();
        const { error, after } = await failureOf(call(etcd, "a", anyLease()));
        expect(error).toMatchObject(writes ? unknown : unavailable);
        expect(after).toBeGreaterThan(3_900);
      });

      test.each(calls)("fails $name with the reason of an abort", async ({ call, writes }) => {
        await using wire = await overWire({ timeout: TOO_LONG });
        wire.proxy.cut();
        const controller = new AbortController();
        const reason = new Error("enough");
        setTimeout(() => controller.abort(reason), 50);
        const { error } = await failureOf(call(wire.etcd, "a", anyLease(), controller.signal));
        if (writes) expect(error).toMatchObject({ ...unknown, cause: reason });
        else expect(error).toBe(reason);
      });

      test("gets no further calls", async () => {
        await using wire = await overWire({ timeout: 5_000 });
        wire.proxy.cut();
        expect((await wire.etcd.range(get("a"))).revision).toBeGreaterThan(0n);
        stopTimers(300);
        await wire.etcd.txn(always(put(`${anyPrefix()}a`, "")));
      });
    });

    describe("a signal that has aborted already", () => {
      test.each(calls)("keeps $name from being sent", async ({ name, call }) => {
        const [key, lease] = [`${anyPrefix()}a`, anyLease()];
        const reason = new Error("enough");
        const { error } = await failureOf(call(direct, key, lease, AbortSignal.abort(reason)));
        expect(error).toBe(reason);
        if (name === "txn") expect((await direct.range(get(key))).kvs).toEqual([]);
        if (name === "grant") expect(await direct.timeToLive(lease)).toBeUndefined();
      });
    });

    describe("a closed port", () => {
      test.each(calls)("fails $name at once", async ({ call }) => {
        const endpoints = [`127.0.0.1:${await freePort()}`];
        await using etcd = open({ endpoints, timeout: TOO_LONG });
        const { error } = await failureOf(call(etcd, "a", anyLease()));
        expect(error).toMatchObject(unavailable);
      });

      test("or an unknown host, before a reachable server, does no harm", async () => {
        const dead = [`127.0.0.1:${await freePort()}`, "nowhere.invalid:2379"];
        for (const { call } of [...calls, ...calls]) {
          await using etcd = open({ endpoints: [...dead, ...server.endpoints] });
          await call(etcd, `${anyPrefix()}a`, anyLease());
        }
      });
    });

    describe("closing", () => {
      test.each(calls)("ends a pending $name", async ({ call, writes }) => {
        await using wire = await overWire({ timeout: TOO_LONG });
        wire.proxy.cut();
        const failure = failureOf(call(wire.etcd, "a", anyLease()));
        await pause(50);
        await wire.etcd.close();
        const { error } = await failure;
        expect(error).toMatchObject({ code: writes ? "UNKNOWN_OUTCOME" : "STORE_CLOSED" });
      });

      test.each(calls)("keeps $name from being sent", async ({ call }) => {
        const etcd = open();
        await etcd.close();
        await etcd.close();
        const { error } = await failureOf(call(etcd, "a", anyLease()));
        expect(error).toMatchObject({ code: "STORE_CLOSED" });
        expect(() => etcd.watch("a", { ready() {}, changed() {} })).toThrow(
          expect.objectContaining({ code: "STORE_CLOSED" }),
        );
      });

      test("lets the process exit during any pending call", async () => {
        await using proxy = await wireTo(server);
        const [endpoint = ""] = server.endpoints;
        using script = runScript("etcd-once", transport, endpoint, `127.0.0.1:${proxy.port}`);
        expect(await script.line()).toBe("begun");
        proxy.cut();
        expect(await script.line()).toBe("closed");
        // Calls on a cut connection take 10 s and more.
        expect(await within(8_000, script.ended)).toBe(0);
      });
    });
  },
);
