import { describe, expect, test } from "vitest";
import type { RunTurn } from "../../core/journal/runs.ts";
import type { JournalFixture } from "../support/journal-under-test.ts";
import {
  claimed,
  claimOf,
  DONE,
  dueQuery,
  dueTimesOf,
  FOREVER,
  newRunId,
  record,
  running,
} from "../support/runs.ts";
import { pause } from "../support/until.ts";

/** Tests of the claims of due runs, and of their turns. */
export function describeTurns({ journal, underTest }: JournalFixture): void {
  /** Starts a run that is due at once. */
  const start = async (workflow: string, turn: RunTurn = {}) => {
    const run = await running(journal, { workflow, turn });
    await journal.park(run, { ...FOREVER, wakeIn: 0 });
    return run.runId;
  };

  describe("the depth of a queue", () => {
    test("counts its open runs, the due ones of all statuses, and tells since when the oldest is due", async () => {
      const workflow = newRunId();
      const turn = { queue: newRunId() };
      const depth = async () =>
        (await journal.queueDepths()).find(({ queue }) => queue === turn.queue);
      const done = await running(journal, { workflow, turn });
      await journal.finish(done, DONE);
      expect(await depth()).toBeUndefined();
      const [sleeping, waiting, blocked] = [
        await running(journal, { workflow, turn }),
        await running(journal, { workflow, turn }),
        await running(journal, { workflow, turn }),
      ];
      await running(journal, { workflow, turn, ttl: 600_000 });
      await journal.park(sleeping, { ...FOREVER, wakeIn: 600_000 });
      await journal.park(waiting, FOREVER);
      await journal.block(blocked, { error: '"e"', blocks: 1, retryIn: 600_000 });
      const open = { queue: turn.queue, running: 1, parked: 2, blocked: 1 };
      expect(await depth()).toEqual({ ...open, due: 0, oldestDueFor: 0 });
      const before = performance.now();
      await start(workflow, turn);
      await running(journal, { workflow, turn, ttl: 1 });
      await pause(50);
      const found = await depth();
      expect(found).toMatchObject({ ...open, running: 2, parked: 3, due: 2 });
      expect(found?.oldestDueFor).toBeGreaterThan(40);
      expect(found?.oldestDueFor).toBeLessThan(performance.now() - before + 1_000);
    });
  });

  // A claim skips runs that another test's transaction has locked for a moment: no other test runs meanwhile.
  describe("a claim of due runs", { concurrent: false }, () => {
    test("claims the longest due runs first, each for one caller, with their histories", async () => {
      const workflow = newRunId();
      const clients = Array.from({ length: 3 }, () => underTest.open());
      const runs = await Promise.all(
        Array.from({ length: 12 }, () => running(journal, { workflow })),
      );
      expect(await journal.claimDue(dueQuery(workflow))).toEqual([]);
      for (const [i, run] of runs.entries()) {
        await journal.append(run, record(`step ${i}`));
        await journal.signal(run.runId, { name: "a", dedupeId: `${i}`, payload: "1" });
        const wakeIn = i === 11 ? 600_000 : 50 * (11 - i);
        await journal.park(run, { ...FOREVER, wakeIn, signalsSeen: 1 });
      }
      const crashed = await running(journal, { workflow, ttl: 1 });
      await pause(700);
      const times = await dueTimesOf(journal, workflow);
      expect(times).toHaveLength(12);
      const dueAt = (run?: { readonly runId: string }) =>
        times.find(({ runId }) => runId === run?.runId)?.dueAt;
      const others = [
        { workflow, version: 2 },
        { workflow: "other", version: 1 },
      ];
      expect(await journal.claimDue(dueQuery(workflow, { workflows: others }))).toEqual([]);
      expect(await journal.claimDue(dueQuery(workflow, { queues: ["another"] }))).toEqual([]);
      const [first] = await journal.claimDue(dueQuery(workflow, { limit: 1 }));
      expect(dueAt(first)).toBe(times[0]?.dueAt);
      const left = times.filter(({ runId }) => runId !== first?.runId);
      const except = left.slice(0, 2).map(({ runId }) => runId);
      const [fourth] = await journal.claimDue(dueQuery(workflow, { limit: 1, except }));
      expect(dueAt(fourth)).toBe(left[2]?.dueAt);
      const several = dueQuery(workflow, {
        workflows: [...others, { workflow, version: 1 }],
        queues: ["another", "default"],
        limit: 4,
      });
      const rest = (await Promise.all(clients.map((one) => one.journal.claimDue(several)))).flat();
      // Claims at once skip rows that another one has locked.
      for (;;) {
        const more = await journal.claimDue(several);
        if (more.length === 0) break;
        rest.push(...more);
      }
      const all = [first, fourth, ...rest].map((run) => run?.runId);
      expect(all.sort()).toEqual(times.map(({ runId }) => runId).sort());
      for (const run of rest) {
        const at = runs.findIndex(({ runId }) => runId === run.runId);
        expect(run.crashes).toBe(run.runId === crashed.runId ? 1 : 0);
        expect(run.records.map(({ key }) => key)).toEqual(at < 0 ? [] : [`step ${at}`]);
        expect(run.signals.map(({ dedupeId }) => dedupeId)).toEqual(at < 0 ? [] : [`${at}`]);
        expect(run).toMatchObject({ workflow, version: 1, input: '{"units":1}' });
        await journal.append(run, record("next"));
        expect(await journal.show(run.runId)).toMatchObject({
          status: "running",
          owner: "a worker",
        });
      }
      expect(await journal.claimDue(several)).toEqual([]);
      for (const client of clients) await client.close();
    });

    test("lets keys take turns, however many runs of one key are due longer", async () => {
      const workflow = newRunId();
      for (let i = 0; i < 60; i += 1) await start(workflow, { key: "busy" });
      await start(workflow, { key: "quiet" });
      await start(workflow);
      const client = underTest.open();
      const got: (string | undefined)[] = [];
      for (let i = 0; i < 5; i += 1) {
        const [run] = await client.journal.claimDue(dueQuery(workflow, { limit: 1 }));
        got.push((await journal.show(run?.runId ?? ""))?.key);
      }
      expect(got.slice(0, 3).toSorted()).toEqual(["busy", "quiet", undefined]);
      expect(got.slice(3)).toEqual(["busy", "busy"]);
      for (let i = 0; i < 4; i += 1) await start(workflow, { key: "other" });
      // A client knows of a new key after a second at the latest.
      await pause(1_100);
      const claimed = await client.journal.claimDue(dueQuery(workflow, { limit: 6 }));
      const keys = await Promise.all(claimed.map(async ({ runId }) => journal.show(runId)));
      expect(keys.filter((run) => run?.key === "other")).toHaveLength(3);
      await client.close();
    });

    test("takes the highest priority first, however many other runs are due longer", async () => {
      const workflow = newRunId();
      for (let i = 0; i < 50; i += 1) await start(workflow);
      await start(workflow, { key: "a", priority: 7 });
      await start(workflow, { priority: 1_000 });
      await start(workflow, { priority: -1 });
      const client = underTest.open();
      const priorities = [];
      for (let i = 0; i < 3; i += 1) {
        const [run] = await client.journal.claimDue(dueQuery(workflow, { limit: 1 }));
        priorities.push((await journal.show(run?.runId ?? ""))?.priority);
      }
      expect(priorities).toEqual([1_000, 7, 0]);
      await client.close();
    });

    test("wins every run for one of several callers, with few claims in vain", async () => {
      const workflow = newRunId();
      const total = 80;
      for (let i = 0; i < total; i += 1) await start(workflow);
      const clients = Array.from({ length: 4 }, () => underTest.open());
      let calls = 0;
      const work = async (client: (typeof clients)[number]) => {
        const won: string[] = [];
        for (;;) {
          const runs = await client.journal.claimDue(dueQuery(workflow, { limit: 1 }));
          if (runs.length === 0) return won;
          calls += 1;
          won.push(...runs.map(({ runId }) => runId));
        }
      };
      const won = (await Promise.all(clients.map(work))).flat();
      expect(new Set(won).size).toBe(total);
      expect(won).toHaveLength(total);
      expect(calls).toBe(total);
      for (const client of clients) await client.close();
    });
  });

  describe("the limits of a queue", { concurrent: false }, () => {
    const limitsOf = async (queue: string) => (await journal.limits()).get(queue);

    test("bound the executed runs of the queue and of each key, for all callers together", async () => {
      const workflow = newRunId();
      const queue = `queue of ${workflow}`;
      await journal.setLimits(queue, { concurrency: 5, perKey: 2 });
      expect(await limitsOf(queue)).toMatchObject({ concurrency: 5, perKey: 2 });
      for (let i = 0; i < 40; i += 1)
        await start(workflow, { queue, key: i < 30 ? "a" : `${i % 2}` });
      const clients = Array.from({ length: 4 }, () => underTest.open());
      const query = dueQuery(workflow, { queues: [queue], limit: 3 });
      const claimAll = async () =>
        (await Promise.all(clients.map((one) => one.journal.claimDue(query)))).flat();
      const won = [...(await claimAll()), ...(await claimAll())];
      expect(won).toHaveLength(5);
      const keys = await Promise.all(
        won.map(async ({ runId }) => (await journal.show(runId))?.key),
      );
      for (const count of Map.groupBy(keys, (key) => key).values()) {
        expect(count.length).toBeLessThanOrEqual(2);
      }
      expect(await claimAll()).toEqual([]);
      const [ended, parked] = won as [(typeof won)[0], (typeof won)[0]];
      await journal.finish(ended, DONE);
      expect(await claimAll()).toHaveLength(1);
      await journal.park(parked, FOREVER);
      expect(await claimAll()).toHaveLength(1);
      await journal.setLimits(queue, {});
      expect(await limitsOf(queue)).toBeUndefined();
      expect((await claimAll()).length).toBeGreaterThan(5);
      for (const client of clients) await client.close();
    });

    test("bound the claims of each key per span, and let the others take their turns", async () => {
      const workflow = newRunId();
      const queue = `queue of ${workflow}`;
      await journal.setLimits(queue, { ratePerKey: { runs: 2, per: "1h" } });
      expect(await limitsOf(queue)).toMatchObject({ ratePerKey: { runs: 2, per: 3_600_000 } });
      for (let i = 0; i < 8; i += 1) await start(workflow, { queue, key: "busy" });
      for (const key of ["a", "b", undefined, undefined, undefined]) {
        await start(workflow, { queue, ...(key && { key }) });
      }
      const clients = Array.from({ length: 3 }, () => underTest.open());
      let heldFor: number | undefined;
      const onHeldBack = (retryIn: number) => {
        heldFor = retryIn;
      };
      const query = dueQuery(workflow, { queues: [queue], limit: 4, onHeldBack });
      const won = [];
      for (let i = 0; i < 3; i += 1) {
        for (const client of clients) won.push(...(await client.journal.claimDue(query)));
      }
      const keys = await Promise.all(
        won.map(async ({ runId }) => (await journal.show(runId))?.key ?? "none"),
      );
      expect(keys.toSorted()).toEqual(["a", "b", "busy", "busy", "none", "none", "none"]);
      expect(heldFor).toBeGreaterThan(1_700_000);
      expect(heldFor).toBeLessThanOrEqual(1_800_000);
      // The use starts anew.
      await journal.setLimits(queue, { ratePerKey: { runs: 1, per: "1h" }, concurrency: 100 });
      expect(await clients[0]?.journal.claimDue(query)).toHaveLength(1);
      await journal.setLimits(queue, { ratePerKey: { runs: 1, per: 1 } });
      expect(await journal.claimDue(query)).toHaveLength(1);
      await pause(20);
      await journal.purge(10);
      expect(await journal.claimDue(query)).toHaveLength(1);
      await journal.setLimits(queue, {});
      for (const client of clients) await client.close();
    });

    test("bound the claims per span", async () => {
      const workflow = newRunId();
      const queue = `queue of ${workflow}`;
      await journal.setLimits(queue, { rate: { runs: 3, per: 3_600_000 } });
      for (let i = 0; i < 6; i += 1) await start(workflow, { queue });
      const query = dueQuery(workflow, { queues: [queue], limit: 2 });
      const claims = [];
      for (let i = 0; i < 4; i += 1) claims.push((await journal.claimDue(query)).length);
      expect(claims).toEqual([2, 1, 0, 0]);
      await journal.setLimits(queue, { rate: { runs: 1_000_000, per: 3_600_000 } });
      expect(await journal.claimDue(query)).toHaveLength(2);
      await journal.setLimits(queue, {});
    });

    test("do not count a run whose lease has expired", async () => {
      const workflow = newRunId();
      const queue = `queue of ${workflow}`;
      await journal.setLimits(queue, { concurrency: 1 });
      await start(workflow, { queue });
      const query = dueQuery(workflow, { queues: [queue] });
      expect(await journal.claimDue({ ...query, ttl: 1 })).toHaveLength(1);
      await pause(20);
      expect(await journal.claimDue(query)).toHaveLength(1);
      await journal.setLimits(queue, {});
    });
  });

  test("several wakes for one release of a lock wake one run", async () => {
    const lock = newRunId();
    const runs = [await running(journal), await running(journal)];
    for (const run of runs) {
      await journal.park(run, { ...FOREVER, reason: "lock-busy", wakeIn: 600_000, lock });
    }
    const client = underTest.open();
    for (const one of [journal, client.journal]) expect(await one.wakeWaiting(lock)).toBe(true);
    await client.close();
    const due = await Promise.all(runs.map(({ runId }) => journal.find(runId)));
    expect(due.filter((run) => (run?.dueAt?.getTime() ?? 0) < Date.now() + 30_000)).toHaveLength(1);
  });

  test("the oldest run that is parked for a lock is woken, and only while it waits", async () => {
    const lock = newRunId();
    const runs = [];
    for (let i = 0; i < 3; i += 1) {
      runs.push(await running(journal));
      await pause(3);
    }
    const [first, second, third] = runs as [(typeof runs)[0], (typeof runs)[0], (typeof runs)[0]];
    for (const run of [third, second]) {
      await journal.park(run, { ...FOREVER, reason: "lock-busy", wakeIn: 600_000, lock });
    }
    await journal.park(first, { ...FOREVER, reason: "lock-busy", wakeIn: 600_000, lock: "other" });
    expect(await journal.find(second.runId)).toMatchObject({ waitsFor: lock });
    expect(await journal.show(first.runId)).toMatchObject({ waitsFor: "other" });
    const isDue = async ({ claim }: typeof first) =>
      (await journal.claim(claim)).kind === "claimed";
    expect(await journal.wakeWaiting(lock)).toBe(true);
    expect(await isDue(third)).toBe(false);
    expect(await isDue(second)).toBe(true);
    expect(await journal.find(second.runId)).toMatchObject({ waitsFor: undefined });
    expect(await isDue(first)).toBe(false);
    // The second call finds the run that the first one has woken.
    const both = [journal.wakeWaiting(lock), journal.wakeWaiting(lock)];
    expect(await Promise.all(both)).toEqual([true, true]);
    expect(await isDue(third)).toBe(true);
    expect(await journal.wakeWaiting(lock)).toBe(false);
  });

  test("a run keeps the turn of its creation, and shows it", async () => {
    const turn = { queue: "mail", key: "Zoë", priority: -3 };
    const claim = claimOf(newRunId(), { turn });
    const { epoch } = await claimed(journal, claim);
    await journal.park({ runId: claim.runId, epoch }, { ...FOREVER, wakeIn: 0 });
    await claimed(journal, { ...claim, turn: { queue: "other" } });
    expect(await journal.show(claim.runId)).toMatchObject(turn);
  });
}
