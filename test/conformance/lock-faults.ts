import { describe, expect, test } from "vitest";
import { deadlineIn } from "../../core/lock/duration.ts";
import { LockLostError } from "../../core/lock/errors.ts";
import { compareFence } from "../../core/lock/fence.ts";
import type { Wire } from "../support/breakable.ts";
import { runCli } from "../support/script.ts";
import { pause, until, within } from "../support/until.ts";
import { freshName, LATE, LONG, type LockSuite, SHORT } from "./lock-suite.ts";

/**
 * How late a call on a silent server may end: 0.5 s as promised, and one second for a busy machine. What waits for no server
 * takes as many steps of the event loop there, and so does `within`. The bounds themselves: test/lock/bounds.test.ts.
 */
const SOON = 1_500;

/** Lost answers, silent servers, dead connections and frozen processes. */
export function describeFaults(suite: LockSuite): void {
  const { expectFree, open, openOverWire, tryLock } = suite;

  describe.each([
    ["is lost", (wire: Wire) => wire.loseNextAnswer()],
    ["is replaced by an error of a proxy", (wire: Wire) => wire.failNextAnswer()],
  ] as const)("an answer that %s", (_, spoilNextAnswer) => {
    test("after an acquire leaves the lock held or free, as the caller learns", async () => {
      const { client, wire } = await openOverWire();
      const name = freshName();
      for (let i = 0; i < 5; i += 1) {
        spoilNextAnswer(wire);
        // A server that executes the claim after its withdrawal keeps the name taken for one ttl.
        const lock = await client.lock(name, { ttl: LONG, wait: 2 * LONG }).catch((error) => {
          expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" });
          return undefined;
        });
        if (lock) {
          expect(await tryLock(open(), name)).toBeUndefined();
          await lock.unlock();
        }
        await expectFree(name);
      }
    });

    test("after a release still leaves the lock released", async () => {
      const { client, wire } = await openOverWire();
      const name = freshName();
      const lock = await client.lock(name, { ttl: LONG, wait: LONG });
      spoilNextAnswer(wire);
      expect(await lock.unlock()).toBe("released");
      await expectFree(name);
    });

    test("after a renewal does not lose the lock", async () => {
      const { client, wire } = await openOverWire();
      const name = freshName();
      const lock = await client.lock(name, { ttl: 2 * SHORT, wait: LONG });
      spoilNextAnswer(wire);
      await pause(3 * SHORT);
      lock.assertHeld();
      expect(await tryLock(open(), name)).toBeUndefined();
      expect(await lock.unlock()).toBe("released");
    });
  });

  describe("faults", () => {
    /** The codes of a call that the server has not answered. */
    const unanswered = expect.stringMatching(/^(STORE_UNAVAILABLE|UNKNOWN_OUTCOME)$/);

    const codeOf = (call: Promise<unknown>) =>
      call.then(
        () => undefined,
        (error) => error.code,
      );

    test("calls and close end in time on a silent server, and no name stays taken", async () => {
      const { client, wire } = await openOverWire();
      const lock = await client.lock(freshName(), { ttl: 2 * LONG, wait: LONG });
      wire.cut();
      const deadline = deadlineIn(300);
      const [tried, waited, dated, ...all] = Array.from({ length: 5 }, freshName) as [
        string,
        string,
        string,
        ...string[],
      ];
      const calls: readonly (readonly [number, Promise<unknown>])[] = [
        [2_000, client.tryLock(tried, { ttl: LONG })],
        [500, client.lock(waited, { ttl: LONG, wait: 500 })],
        [300, client.lock(dated, { ttl: LONG, wait: LONG, deadline })],
        [2_000, client.lockAll(all, { ttl: LONG, wait: 0 })],
      ];
      const ensuring = lock.ensure(3 * LONG).then(
        () => "renewed",
        () => "unanswered",
      );
      const renewing = within(2_000 + SOON, ensuring);
      const outcomes = calls.map(([span, call]) => within(span + SOON, codeOf(call)));
      expect(await Promise.all(outcomes)).toEqual(calls.map(() => unanswered));
      expect(await renewing).toBe("unanswered");
      wire.mend();
      const names = [tried, waited, dated, ...all];
      const others = await open().lockAll(names, { ttl: LONG, wait: LONG / 2 });
      await others.unlock();
      await until(() => client.inspect(tried).catch(() => false));
      lock.assertHeld();
      wire.cut();
      const unlocking = codeOf(lock.unlock());
      await within(2_000 + SOON, client.close());
      wire.mend();
      await within(LATE, unlocking);
    });

    test("a dead connection loses no lock and no turn, and costs each call one attempt", async () => {
      const [keeping, calling] = [await openOverWire(), await openOverWire()];
      const other = open();
      const [held, waited, called] = [freshName(), freshName(), freshName()];
      const ttl = 9_000;
      const lock = await keeping.client.lock(held, { ttl, wait: LONG });
      const before = await other.lock(waited, { ttl: LONG, wait: LONG });
      const waiting = keeping.client.lock(waited, { ttl: 3 * LONG, wait: 3 * LONG });
      // Long enough to enter the queue.
      await pause(500);
      keeping.wire.blackhole();
      await before.unlock();
      const call = async <T>(over: () => Promise<T>) => {
        calling.wire.blackhole();
        return within(LATE, over());
      };
      const calls = async () => {
        const { client } = calling;
        await client.inspect(called);
        const options = { ttl: 3 * LONG, wait: LONG };
        const first = await call(() => client.lock(called, options));
        const look = () => client.inspect(called).catch(() => undefined);
        expect((await call(() => until(look))).holder).toBeDefined();
        expect(await call(() => first.unlock())).toBe("released");
        const second = await call(() => client.lock(called, options));
        await second.unlock();
        await expectFree(called);
      };
      // Clients ping at least every 10 s; without pings a dead connection takes 20 s and more.
      const turn = within(16_000, waiting).then((next) => next.unlock());
      await Promise.all([calls(), turn, pause(ttl + 1_000)]);
      lock.assertHeld();
      expect(await tryLock(other, held)).toBeUndefined();
      expect(await lock.unlock()).toBe("released");
    });

    test("a claim that arrives late shortens no lock, and keeps its name taken for one ttl at the most", async () => {
      const { client, wire } = await openOverWire();
      const other = open();
      const name = freshName();
      wire.delayNextRequest();
      const lock = await client.lock(name, { ttl: SHORT, wait: LONG, renew: false });
      expect(wire.deliver()).toBe(true);
      while (!lock.signal.aborted) {
        const next = await tryLock(other, name);
        if (!next) {
          await pause(50);
          continue;
        }
        // The new holder has got the lock after the first holder has lost it.
        await pause(0);
        expect(() => lock.assertHeld()).toThrow(LockLostError);
        await next.unlock();
        break;
      }
      const next = await other.lock(name, { ttl: LONG, wait: LONG });
      expect(compareFence(lock.fence, next.fence)).toBe(-1);
      expect(await lock.unlock()).toBe("was-lost");
      next.assertHeld();
    });

    test("the lock of a frozen holder goes to the next waiter, and the holder learns of the loss when it continues", async () => {
      if (suite.store.url === undefined) {
        expect(suite.isOpenedByUrl()).toBe(false);
        return;
      }
      const name = freshName();
      const ttl = `${SHORT}ms`;
      const command = ["sh", "-c", "echo started; sleep 60"];
      using holder = runCli(
        "lock",
        name,
        "--store",
        suite.store.url,
        "--ttl",
        ttl,
        "--",
        ...command,
      );
      expect(await holder.line()).toBe("started");
      holder.child.kill("SIGSTOP");
      const lock = await open().lock(name, { ttl: LONG, wait: LONG });
      holder.child.kill("SIGCONT");
      expect(await holder.ended).toBe(76);
      lock.assertHeld();
      expect(await lock.unlock()).toBe("released");
    });
  });
}
