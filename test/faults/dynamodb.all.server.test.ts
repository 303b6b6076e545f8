import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { compareFence } from "../../core/lock/fence.ts";
import { openDynamodb } from "../../core/stores/dynamodb/index.ts";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { sellThroughRestarts } from "../conformance/sql-outages.ts";
import { known } from "../support/known.ts";
import { restart } from "../support/restart.ts";
import { runCli } from "../support/script.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { pause, until } from "../support/until.ts";

/** A ttl that no restart of a server on a busy machine outlasts. */
const LONG = 120_000;

describe("a DynamoDB server", () => {
  let server: Server;
  let port: number;

  beforeAll(async () => {
    server = await startServer("dynamodb");
    port = server.nodes[0]?.config.port ?? 0;
    await using shop = await open();
    await shop.table.create();
  });

  afterAll(() => server.stop());

  const open = (at = port) =>
    openDynamodb({
      region: "local",
      table: "lockstep",
      endpoint: `http://127.0.0.1:${at}`,
      credentials: { accessKeyId: "key", secretAccessKey: "secret" },
    });

  test("that is killed keeps an acknowledged lock, and its waiters get the lock in the end", async () => {
    await using ours = await open();
    await using theirs = await open();
    const lock = await ours.locks.lock("a", { ttl: LONG, wait: LONG });
    const write = vi.spyOn(theirs.dynamodb, "write");
    const waiting = theirs.locks.lock("a", { ttl: LONG, wait: LONG });
    // A waiter without an answer would give up.
    await until(() => write.mock.calls.length > 0);
    await pause(300);
    await restart(server);
    expect(await theirs.locks.tryLock("a", { ttl: LONG })).toBeUndefined();
    lock.assertHeld();
    await known(() => lock.ensure(LONG));
    expect(await lock.unlock()).toBe("released");
    const next = await waiting;
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    await next.unlock();
  });

  test("that is frozen ends each holder's lock in time, lets each process exit, and then serves the next holder", async () => {
    await using ours = await open();
    await using theirs = await open();
    const lock = await ours.locks.lock("frozen", { ttl: 4_000, wait: LONG });
    const command = ["sh", "-c", "echo started; sleep 60"];
    using holder = runCli("lock", "held", "--store", server.url, "--ttl", "9s", "--", ...command);
    expect(await holder.line()).toBe("started");
    const [node] = server.nodes;
    await node?.kill("SIGSTOP");
    try {
      await until(() => lock.signal.aborted);
      expect(await holder.ended).toBe(76);
    } finally {
      await node?.kill("SIGCONT");
    }
    const next = await theirs.locks.lock("frozen", { ttl: LONG, wait: LONG });
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
    await next.unlock();
  });

  // DynamoDB Local answers a transaction before its COMMIT has ended, which DynamoDB does not. Reads wait for the COMMIT:
  // a replayed answer has read it.
  test("that is killed loses no acknowledged sale, and repeats none", () =>
    sellThroughRestarts(server, ({ replayed }) => replayed));

  test.each(["blackhole", "cut", "reset"] as const)(
    "behind a connection with the fault %s applies each sale once",
    async (fault) => {
      await using proxy = await TcpProxy.to(port);
      await using shop = await open(proxy.port);
      const sku = `sku-${fault}`;
      await shop.inventory.set({ sku, quantity: 10, operationId: `set-${fault}` });
      const selling = Array.from({ length: 4 }, (_, i) =>
        known(() => shop.inventory.decrement({ sku, quantity: 1, operationId: `${fault}/${i}` })),
      );
      proxy[fault]();
      if (fault === "cut") {
        await pause(1_000);
        proxy.mend();
      }
      await Promise.all(selling);
      expect(await shop.inventory.get(sku)).toMatchObject({ onHand: 6, sold: 4 });
    },
  );
});
