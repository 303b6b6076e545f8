import { afterAll, describe, expect, test } from "vitest";
import { type Etcd, get, put } from "../../core/etcd/etcd.ts";
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
import { pause } from "../support/until.ts";

type Call = (etcd: Etcd, key: string, lease: bigint, signal?: AbortSignal) => Promise<unknown>;

/** Every call there is, on a key and a lease. */
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

/** What a call fails with, and after how long. */
async function failureOf(call: Promise<unknown>) {
  const start = performance.now();
  const error: unknown = await call.then(
    (answer) => new Error(`it answered ${String(answer)}`),
    (reason: unknown) => reason,
  );
  return { error, after: performance.now() - start };
}

describe.each([...etcdsUnderTest(), ...nodeGatewayUnderTest()])(
  "$name",
  ({ open, server, transport }) => {
    const direct = open();
    afterAll(() => direct.close());

    /** A client whose first endpoint is behind a wire that can be broken; the second is the server itself. */
    async function overWire(options: Parameters<typeof open>[0] = {}) {
      const proxy = await wireTo(server);
      const etcd = open({
        endpoints: [`127.0.0.1:${proxy.port}`, ...server.endpoints],
        ...options,
      });
      // So that what breaks is what the test asks for, not the connection's beginning.
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
      test("to a transaction leaves the outcome open, and nothing is done twice", async () => {
        let done = 0;
        for (let round = 0; round < 10; round += 1) {
          await using wire = await overWire();
          const key = `${anyPrefix()}a`;
          wire.proxy.loseNextAnswer();
          await expect(wire.etcd.txn(always(put(key, "")))).rejects.toMatchObject(unknown);
          const { kvs } = await direct.range(get(key));
          expect(kvs[0]?.version ?? 1n).toBe(1n);
          expect((await wire.etcd.range(get(key))).kvs).toEqual(kvs);
          done += kvs.length;
        }
        // It is not always: the server gives up what it has not begun when the connection ends.
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

      test.each(onReads)("to $name has it asked again elsewhere", async ({ call }) => {
        const [key, lease] = [`${anyPrefix()}a`, anyLease()];
        await direct.txn(always(put(key, "")));
        await direct.grant(lease, 60);
        await using wire = await overWire();
        wire.proxy.loseNextAnswer();
        // Others write to the same server in between.
        const apart = (answer: unknown) =>
          answer instanceof Object ? { ...answer, revision: undefined } : answer;
        const told = await call(wire.etcd, key, lease);
        expect(apart(told)).toEqual(apart(await call(direct, key, lease)));
        await direct.revoke(lease);
      });

      test.each(onReads)(
        "to $name, and nobody else to ask, has it asked again",
        async ({ call }) => {
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
        },
      );
    });

    describe("a server that does not answer", () => {
      test.each(calls)("fails $name when the time is over", async ({ call, writes }) => {
        await using proxy = await wireTo(server);
        await using etcd = open({ endpoints: [`127.0.0.1:${proxy.port}`], timeout: 1_000 });
        await etcd.keepAlive(anyLease());
        await etcd.range(get("a"));
        proxy.cut();
        const { error, after } = await failureOf(call(etcd, "a", anyLease()));
        expect(error).toMatchObject(writes ? unknown : unavailable);
        expect(after).toBeGreaterThan(900);
        expect(after).toBeLessThan(5_000);
      });

      test.each(calls)("fails $name with the reason of an abort", async ({ call, writes }) => {
        await using wire = await overWire();
        wire.proxy.cut();
        const controller = new AbortController();
        const reason = new Error("enough");
        setTimeout(() => controller.abort(reason), 50);
        const { error, after } = await failureOf(
          call(wire.etcd, "a", anyLease(), controller.signal),
        );
        if (writes) expect(error).toMatchObject({ ...unknown, cause: reason });
        else expect(error).toBe(reason);
        expect(after).toBeLessThan(3_000);
      });

      test("is left alone from then on", async () => {
        await using wire = await overWire({ timeout: 2_000 });
        wire.proxy.cut();
        expect((await wire.etcd.range(get("a"))).revision).toBeGreaterThan(0n);
        const start = performance.now();
        await wire.etcd.txn(always(put(`${anyPrefix()}a`, "")));
        expect(performance.now() - start).toBeLessThan(1_900);
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
      test.each(calls)("is told of by $name at once", async ({ call }) => {
        await using etcd = open({ endpoints: [`127.0.0.1:${await freePort()}`] });
        const { error, after } = await failureOf(call(etcd, "a", anyLease()));
        expect(error).toMatchObject(unavailable);
        expect(after).toBeLessThan(2_000);
      });

      test("or an unknown host, before a server that is there, does no harm", async () => {
        const dead = [`127.0.0.1:${await freePort()}`, "nowhere.invalid:2379"];
        for (const { call } of [...calls, ...calls]) {
          await using etcd = open({ endpoints: [...dead, ...server.endpoints] });
          await call(etcd, `${anyPrefix()}a`, anyLease());
        }
      });
    });

    describe("closing", () => {
      test.each(calls)("ends $name under way", async ({ call, writes }) => {
        await using wire = await overWire();
        wire.proxy.cut();
        const failure = failureOf(call(wire.etcd, "a", anyLease()));
        await pause(50);
        await wire.etcd.close();
        const { error, after } = await failure;
        expect(error).toMatchObject({ code: writes ? "UNKNOWN_OUTCOME" : "STORE_CLOSED" });
        expect(after).toBeLessThan(1_000);
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

      test("lets the process end, whatever was under way", async () => {
        await using proxy = await wireTo(server);
        const [endpoint = ""] = server.endpoints;
        using script = runScript("etcd-once", transport, endpoint, `127.0.0.1:${proxy.port}`);
        expect(await script.line()).toBe("begun");
        proxy.cut();
        expect(await script.line()).toBe("closed");
        const closedAt = performance.now();
        expect(await script.ended).toBe(0);
        expect(performance.now() - closedAt).toBeLessThan(2_000);
      });
    });
  },
);
