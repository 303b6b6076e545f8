import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import type { LockStore } from "../../core/lock/lock.ts";
import { entity } from "../../core/steps/entity/entity.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { cli } from "../support/cli.ts";
import { singleEtcds } from "../support/etcd-under-test.ts";
import { OwnRedis } from "../support/own-redis.ts";
import {
  etcdUnderTest,
  redisUnderTest,
  type StoreUnderTest,
  temporaryFile,
} from "../support/under-test.ts";
import { wakeUpsOf } from "../support/wake-ups.ts";

const counter = entity({ name: "counter", state: z.int(), initial: 0 }, (on) => ({
  add: on(z.int(), async ({ state }, n) => ({ state: state + n })),
}));

const quick = workflow({ name: "quick", version: 1, input: z.string() }, async () => {});

describeWakeUps("redis", redisUnderTest);
for (const server of singleEtcds()) {
  describeWakeUps(server.name, () => etcdUnderTest(server));
  describeWakeUps(`${server.name} over the gateway`, () => etcdUnderTest(server, "gateway"));
}

test("commands of the command line tell the workers", async () => {
  const under = await redisUnderTest();
  onTestFinished(() => under.close());
  const { openRuntime, file } = await fleet(() => under.open());
  const runtime = await openRuntime();
  await runtime.start(quick, "x", { id: "a" });
  const woken = await wakeUpsOf(runtime);
  for (const command of [
    ["signal", "a", "go"],
    ["cancel", "a"],
  ]) {
    const stores = ["--store", `sqlite:${file}`, "--locks", under.url ?? ""];
    await woken.by(async () => {
      expect(await cli("runs", ...command, ...stores)).toMatchObject({ status: 0 });
    });
  }
});

test("a listener hears of runs again after its connection to Redis was cut", async () => {
  await using own = await OwnRedis.start();
  const admin = own.client();
  const { openRuntime } = await fleet(() => own.locks());
  const [ours, theirs] = [await openRuntime(), await openRuntime()];
  const woken = await wakeUpsOf(theirs);
  await woken.by(() => admin.call(["CLIENT", "KILL", "TYPE", "pubsub"]));
  await woken.by(() => ours.start(quick, "x", { id: "a" }));
});

/** No worker polls here: only a notification can call the listener. */
function describeWakeUps(name: string, make: () => Promise<StoreUnderTest>): void {
  describe(`runtimes that share ${name} and a journal`, () => {
    test("tell each other of starts, signals and cancellations", async () => {
      const under = await make();
      onTestFinished(() => under.close());
      const { openRuntime } = await fleet(() => under.open());
      const [ours, theirs] = [await openRuntime(), await openRuntime()];
      const woken = await wakeUpsOf(theirs);
      await woken.by(() => ours.start(quick, "x", { id: "a" }));
      await woken.by(() => ours.signal("a", "go", 1, { dedupeId: "1" }));
      await woken.by(() => ours.cancel("a"));
      const tell = () => ours.entity(counter, "a").tell("add", 1, { operationId: "1" });
      await woken.by(tell);
    });
  });
}

/** Opens runtimes as processes do: each with clients of its own. */
async function fleet(openLocks: () => LockStore) {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  const openRuntime = async () => {
    const locks = openLocks();
    const sqlite = await openSqlite(file);
    onTestFinished(async () => {
      await locks.close();
      await sqlite.close();
    });
    return createRuntime({ journal: sqlite.journal, locks, workflows: [quick] });
  };
  return { openRuntime, file };
}
