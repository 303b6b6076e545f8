import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { encode } from "../../core/steps/codec.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { readIncidents } from "../../functions/telemetry/incident-records.ts";
import { open } from "../../infra/open.ts";
import patient, { visits } from "../programs/patient.ts";
import { startCli } from "../support/cli.ts";
import { mine } from "../support/runs.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

/** The command line on a store of its own, and the output of test/programs/patient.ts. */
async function setUp() {
  const { file, remove } = await temporaryFile();
  const log = join(dirname(file), "log");
  await writeFile(log, "");
  const opened = await open(`sqlite:${file}`);
  const { journal, locks, database } = opened;
  const runtime = createRuntime({ journal });
  const workflows = patient({ locks, database, inventory: sqlInventory(database) });
  const args = [PATIENT, "--store", `sqlite:${file}`];
  const env = { PATIENT_LOG: log };
  return {
    ...{ runtime, journal, locks, args, env },
    worker: (...more: readonly string[]) => startCli(["worker", ...args, ...more], { env }),
    begin: (name: string, id: string, millis: number) => {
      const found = workflows.find((one) => one.name === name);
      if (!found) throw new Error(`there is no workflow ${name}`);
      return runtime.start(found, { id, millis });
    },
    said: async () => (await readFile(log, "utf8")).split("\n").filter(Boolean),
    async close() {
      await opened.close();
      await remove();
    },
  };
}

const PATIENT = fileURLToPath(new URL("../programs/patient.ts", import.meta.url));
const LONG = 60_000;

describe.concurrent("lockstep worker", () => {
  test("finishes its step on TERM, parks the run, exits with 0, and leaves no lock; the next one goes on, and handles the module's entities", async () => {
    const { worker, begin, said, runtime, journal, locks, close } = await setUp();
    await begin("patient", "a", 6_000);
    const { child, finished } = worker();
    await until(async () => (await said()).includes("a begins, 1 held"), LONG);
    child.kill("SIGTERM");
    expect(await finished).toMatchObject({
      status: 0,
      stdout: '{"completed":0,"failed":0,"parked":1,"blocked":0}\n',
      stderr: expect.stringMatching(
        /^lockstep: executing patient v1, 8 at a time, on sqlite:.*\nlockstep: run a of patient: executing\nlockstep: run a: parked: deadline, .*\n$/,
      ),
    });
    expect(await said()).toEqual(["a begins, 1 held", "a first"]);
    expect(await locks.list()).toEqual([]);
    expect(await journal.show("a")).toMatchObject({ status: "parked", reason: "deadline" });
    const other = worker();
    await until(async () => (await said()).includes("a second"), LONG);
    await until(async () => (await journal.show("a"))?.status === "completed", LONG);
    const visitsOfA = runtime.entity(visits, "a");
    await visitsOfA.tell("add", 2, { operationId: "1" });
    await until(async () => (await visitsOfA.state()) === 2, LONG);
    other.child.kill("SIGINT");
    expect(await other.finished).toMatchObject({
      status: 0,
      stderr: expect.stringContaining("\nlockstep: run a: completed\n"),
    });
    await close();
  }, 180_000);

  test("aborts its step on a second signal, or when the time to drain is over; the lock is free at once", async () => {
    const { worker, begin, said, journal, locks, close } = await setUp();
    await begin("patient", "a", 600_000);
    for (const [drain, signals] of [
      ["1h", 2],
      ["300ms", 1],
    ] as const) {
      const { child, finished } = worker("--drain", drain);
      const count = (line: string) => async () =>
        (await said()).filter((one) => one === line).length === (drain === "1h" ? 1 : 2);
      await until(count("a begins, 1 held"), LONG);
      child.kill("SIGTERM");
      if (signals === 2) {
        await pause(400);
        expect(await count("a aborted")()).toBe(false);
        // Two at once count as one, and a busy process may get both at once.
        const isAborted = () => until(count("a aborted"), 5_000).catch(() => false);
        do child.kill("SIGTERM");
        while (!(await isAborted()));
      }
      const { status, stderr } = await finished;
      expect({ drain, status }).toEqual({ drain, status: 128 + 15 });
      expect(stderr).toContain("aborted runs: 1");
      expect(await count("a aborted")()).toBe(true);
      expect(await locks.list()).toEqual([]);
      expect(await journal.show("a")).toMatchObject({ status: "parked", crashes: 0 });
    }
    await close();
  }, 180_000);

  test("logs a lost lock, also with --quiet, and leaves it in the store", async () => {
    const { worker, begin, said, locks, close } = await setUp();
    await begin("patient", "a", 120_000);
    const { child, finished } = worker("--quiet", "--drain", "0s");
    await until(async () => (await said()).includes("a begins, 1 held"), LONG);
    const held = await locks.inspect("bench");
    await locks.release("bench", { fence: String(held?.fence) });
    await until(async () => (await said()).includes("a aborted"), LONG);
    child.kill("SIGTERM");
    expect((await finished).stderr).toMatch(/^lockstep: lock "bench" was lost: taken\n/);
    const left = await readIncidents(locks);
    const process = expect.stringContaining(`:${child.pid}`);
    expect(left).toEqual([expect.objectContaining({ kind: "lost", lock: "bench", process })]);
    await close();
  }, 180_000);

  test("serves the queues of --queue alone, before and after the module", async () => {
    const { args, env, worker, begin, said, close } = await setUp();
    await begin("patient", "a", 1);
    const other = worker("--queue", "mail");
    let log = "";
    other.child.stderr?.on("data", (data) => {
      log += data;
    });
    await until(() => log.includes("executing"), LONG);
    await pause(1_000);
    other.child.kill("SIGTERM");
    expect((await other.finished).status).toBe(0);
    expect(await said()).toEqual([]);
    const queues = ["--queue", "mail", "--queue", "default"];
    const { child, finished } = startCli(["worker", ...queues, ...args], { env });
    await until(async () => (await said()).includes("a second"), LONG);
    child.kill("SIGTERM");
    expect((await finished).status).toBe(0);
    await close();
  }, 180_000);

  test("another worker resumes the run of a killed worker after its lease", async () => {
    const { worker, begin, said, journal, close } = await setUp();
    // Its first step lasts longer than a busy machine takes to see it begun.
    await begin("patient", "a", 6_000);
    const first = worker("--lease", "5s");
    await until(async () => (await said()).includes("a begins, 1 held"), LONG);
    first.child.kill("SIGKILL");
    await begin("patient", "b", 400);
    const { epoch } = mine(await journal.take({ runId: "b", owner: "lost", ttl: 1_000 }));
    const done = { kind: "step", outcome: "ok", attempt: 1, value: encode(undefined) } as const;
    await journal.append({ runId: "b", epoch }, { key: "first", ...done });
    const second = worker("--lease", "5s");
    for (const id of ["a", "b"])
      await until(async () => (await journal.find(id))?.status === "completed", LONG);
    second.child.kill("SIGTERM");
    const { status, stderr } = await second.finished;
    expect(status).toBe(0);
    const takenOver = "was taken over: its process was lost";
    expect(stderr).toContain(`run a of patient ${takenOver}, 1 in a row`);
    expect(stderr).toContain(`run b of patient ${takenOver}, after it had recorded a step`);
    expect((await said()).filter((line) => line === "a second")).toHaveLength(1);
    await close();
  }, 180_000);
});
