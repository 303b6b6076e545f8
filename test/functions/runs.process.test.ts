import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { createRuntime } from "../../core/steps/runtime.ts";
import { checkReplay } from "../../core/steps/testing.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { open } from "../../infra/open.ts";
import { noop, placeOrder } from "../programs/order.ts";
import { codec, sealed } from "../programs/sealed.ts";
import { onTerminal, startCli } from "../support/cli.ts";
import { cliInProcess } from "../support/cli-in-process.ts";
import { temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

const program = (name: string) => fileURLToPath(new URL(`../programs/${name}.ts`, import.meta.url));
const ORDER = program("order");

/** A store of its own, and the command line on it. */
async function place() {
  const { file, remove } = await temporaryFile();
  const store = ["--store", `sqlite:${file}`];
  const run = (...args: readonly string[]) => cliInProcess(...args, ...store);
  /** The same in a process of its own. */
  const runApart = (...args: readonly string[]) => startCli([...args, ...store]).finished;
  const order = (orderId: string, trouble: string, ...more: readonly string[]) =>
    run("run", ORDER, "--workflow", "place-order", ...input({ orderId, trouble }), ...more);
  /** As the journal has it. */
  const show = async (runId: string) => {
    await using opened = await open(`sqlite:${file}`);
    return opened.journal.show(runId);
  };
  return { folder: dirname(file), store, run, runApart, order, show, remove };
}

function input(value: unknown): readonly string[] {
  return ["--input", JSON.stringify(value)];
}

describe.concurrent("lockstep run and lockstep runs", () => {
  test("a run is shown without its store of locks, which is not made", async () => {
    const { folder, order, run, remove } = await place();
    await order("a", "none");
    const locks = join(folder, "no", "locks.db");
    expect((await run("runs", "show", "a", "--locks", `sqlite:${locks}`)).status).toBe(0);
    expect(existsSync(dirname(locks))).toBe(false);
    await remove();
  });

  test("a run's outcome is printed and decides the exit status", async () => {
    const { run, order, show, remove } = await place();
    const completed = await order("a", "flaky");
    expect(completed.status).toBe(0);
    expect(completed.stderr).toMatch(/run a, step \w+, attempt 1: Error: .*\n +at .*order\.ts:\d+/);
    expect(JSON.parse(completed.stdout)).toEqual({
      runId: "a",
      status: "completed",
      output: { orderId: "a" },
    });
    expect(await order("a", "flaky")).toMatchObject({ stdout: completed.stdout, stderr: "" });
    const other = await order("a", "none");
    expect(other).toMatchObject({ status: 1, stdout: "" });
    expect(other.stderr).toContain("another input");
    const failed = await order("b", "declined");
    expect(failed.status).toBe(1);
    expect(JSON.parse(failed.stdout)).toMatchObject({
      status: "failed",
      error: { code: "DECLINED" },
      compensated: "yes",
    });
    const { stdout } = await order("c", "leaks");
    expect(JSON.parse(stdout)).toMatchObject({
      error: { code: "AWAY", message: expect.stringMatching(/mysql:\/\/db\/shop is away$/) },
    });
    const undone = (await show("b"))?.records.find(({ kind }) => kind === "undo");
    expect(undone).toMatchObject({
      key: "~undo/reserve",
      outcome: "ok",
      fence: expect.any(String),
    });
    const noop = await run("run", ORDER, "--workflow", "noop", "--id", "n", "--input", "null");
    expect(JSON.parse(noop.stdout)).toEqual({ runId: "n", status: "completed", output: "done" });
    await remove();
  }, 120_000);

  test("runs limits that only reads makes no store", async () => {
    const { folder, remove } = await place();
    const file = join(folder, "none.db");
    const { stdout } = await cliInProcess("runs", "limits", "--store", `sqlite:${file}`);
    expect([stdout, existsSync(file)]).toEqual(["{}\n", false]);
    await remove();
  });

  test("the id of a run steers no terminal", async () => {
    const { order, run, remove } = await place();
    await order("evil\u001b]0;owned\u0007\nreopened", "declined");
    const { stdout } = await run("runs", "retry", "--status", "failed");
    expect(stdout).not.toContain("\u001b");
    expect(stdout.split("\n")).toHaveLength(2);
    await remove();
  });

  test("runs limits shows, replaces and removes the limits of a queue", async () => {
    const { run, remove } = await place();
    const limits = async (...args: readonly string[]) => {
      const { stdout, stderr, status } = await run("runs", "limits", ...args);
      return status === 0 ? JSON.parse(stdout) : { status, stderr };
    };
    expect(await limits()).toEqual({});
    const mail = { concurrency: 20, perKey: 2, rate: { runs: 100, per: 60_000 } };
    const all = ["--concurrency", "20", "--per-key", "2", "--rate", "100/1m"];
    expect(await limits("mail", ...all)).toEqual({ mail });
    expect(await limits("mail", "--per-key", "3")).toEqual({ mail: { perKey: 3 } });
    expect(await limits("mail", "--rate", "often")).toMatchObject({ status: 64 });
    expect(await limits("mail", "--rate-per-key", "5/never")).toMatchObject({ status: 64 });
    expect(await limits("mail", "--concurrency", "0")).toMatchObject({ status: 64 });
    expect(await limits("mail")).toMatchObject({ status: 64 });
    expect(await limits("--none")).toMatchObject({ status: 64 });
    expect(await limits("mail", "--none")).toEqual({});
    await remove();
  }, 120_000);

  test("runs export prints a history for the replay check", async () => {
    const { run, order, remove } = await place();
    await order("a", "declined");
    const { stdout, status } = await run("runs", "export", "a");
    expect(status).toBe(0);
    const report = await checkReplay(placeOrder, stdout);
    expect(report.divergence).toBeUndefined();
    expect(report.commands.map(({ state }) => state)).not.toContain("missing");
    expect(await run("runs", "export", "none")).toMatchObject({ status: 1, stdout: "" });
    await remove();
  }, 120_000);

  test("values of a codec are shown as their size, and decoded with the codec of the module", async () => {
    const { run, remove } = await place();
    const module = ["--module", program("sealed")];
    const started = await run("run", program("sealed"), "--id", "s", ...input({ card: "4242" }));
    expect(JSON.parse(started.stdout)).toMatchObject({ status: "failed", error: { code: "NO" } });
    const encoded = { codec: "encrypted", bytes: expect.any(Number) };
    const { stdout } = await run("runs", "show", "s", "--json");
    expect(JSON.parse(stdout)).toMatchObject({ input: encoded, ending: { value: encoded } });
    const picture = (await run("runs", "show", "s")).stdout;
    expect(picture).toMatch(/^input {2}\{"codec":"encrypted","bytes":\d+\}$/m);
    expect(picture).toMatch(/^failed {2}encrypted: \d+ bytes$/m);
    expect(picture).not.toContain("4242");
    expect((await run("runs", "show", "s", ...module)).stdout).toContain('input  {"card":"4242"}');
    expect((await run("runs", "query", "s", "card", ...module)).stdout).toBe('"4242"\n');
    expect(JSON.parse((await run("runs", "query", "s", "card")).stdout)).toEqual(encoded);
    expect(await run("runs", "retry", "s")).toMatchObject({
      ...{ status: 1, stderr: expect.stringContaining("encoded by encrypted") },
    });
    expect(await run("runs", "retry", "s", ...module)).toMatchObject({ stdout: "reopened\n" });
    const history = (await run("runs", "export", "s")).stdout;
    expect(history).not.toContain("4242");
    const report = await checkReplay(sealed, history, { codec });
    expect(report).toMatchObject({ divergence: undefined, commands: [{ state: "same" }, {}] });
    await expect(checkReplay(sealed, history)).rejects.toMatchObject({ code: "UNREADABLE_VALUE" });
    await remove();
  }, 120_000);

  test("a run is queried, and answers an update once a process executes it", async () => {
    const { run, remove } = await place();
    const start = ["run", ORDER, "--workflow", "counter", "--id", "c", "--input", "null"];
    expect((await run(...start)).status).toBe(75);
    expect(await run("runs", "query", "c", "sum")).toMatchObject({ status: 0, stdout: "0\n" });
    const update = ["runs", "update", "c", "add", "--payload", "5", "--dedupe-id", "1"];
    const pending = { status: 75, stdout: '{"status":"pending"}\n' };
    expect(await run(...update, "--wait", "1ms")).toMatchObject(pending);
    expect((await run("runs", "resume", "c", ORDER)).status).toBe(0);
    const answered = { status: 0, stdout: '{"status":"answered","output":5}\n' };
    expect(await run(...update)).toMatchObject(answered);
    await remove();
  }, 120_000);

  test("a waiting run is parked, woken by a signal, and continued by another process", async () => {
    const { run, runApart, order, remove } = await place();
    expect(await order("a", "waits")).toMatchObject({
      status: 75,
      stdout: '{"runId":"a","status":"suspended","reason":"signal"}\n',
    });
    expect((await run("runs", "list", "--status", "parked")).stdout).toContain("parked (signal)");
    const pay = ["runs", "signal", "a", "paid", "--payload", '{"amount":12}', "--dedupe-id", "1"];
    expect(await run(...pay)).toMatchObject({ status: 0, stdout: "delivered\n" });
    expect(await run(...pay)).toMatchObject({ status: 0, stdout: "duplicate\n" });
    const resumed = await runApart("runs", "resume", "a", ORDER);
    expect(JSON.parse(resumed.stdout)).toMatchObject({ output: { orderId: "a", amount: 12 } });
    expect(await run(...pay)).toMatchObject({ status: 1, stdout: "ended\n" });
    const { records, signals } = JSON.parse((await run("runs", "show", "a", "--json")).stdout);
    expect(records.map(({ key }: { key: string }) => key)).toContain("~signal/paid");
    expect(signals).toMatchObject([{ name: "paid", payload: { amount: 12 } }]);
    const picture = (await run("runs", "show", "a")).stdout;
    expect(picture).toContain("↻");
    expect(picture).toContain('output  {"orderId":"a","amount":12}');
    expect(picture).not.toContain("\u001b");
    await remove();
  }, 120_000);

  test("a detached start may be a singleton or debounced", async () => {
    const { run, remove } = await place();
    const start = async (...args: readonly string[]) => {
      const input = ["--workflow", "noop", "--input", "null", "--detach"];
      const { stdout, status } = await run("run", ORDER, ...input, ...args);
      return status === 0 ? JSON.parse(stdout).runId : status;
    };
    const first = await start("--singleton", "all");
    expect(await start("--singleton", "all")).toBe(first);
    expect(await start("--singleton", "other")).not.toBe(first);
    const later = await start("--debounce", "1h");
    expect(await start("--debounce", "1h")).toBe(later);
    expect(await start("--debounce", "1h", "--debounce-key", "b")).not.toBe(later);
    expect(await start("--debounce", "often")).toBe(64);
    const attached = await run("run", ORDER, "--input", "null", "--singleton", "a");
    expect(attached).toMatchObject({ status: 64 });
    await remove();
  }, 120_000);

  test("a detached run is started and not executed; a cancelled run is undone", async () => {
    const { run, order, show, remove } = await place();
    expect(await order("a", "none", "--detach")).toMatchObject({ status: 0 });
    expect(await show("a")).toMatchObject({ status: "parked", records: [] });
    await order("b", "waits");
    expect(await run("runs", "cancel", "b")).toMatchObject({ status: 0, stdout: "requested\n" });
    const cancelled = await run("runs", "resume", "b", ORDER);
    expect(cancelled.status).toBe(1);
    expect(JSON.parse(cancelled.stdout)).toMatchObject({ error: { code: "RUN_CANCELLED" } });
    expect(await show("b")).toMatchObject({ status: "cancelled", ending: { compensated: "yes" } });
    expect(await run("runs", "cancel", "b")).toMatchObject({ status: 1, stdout: "ended\n" });
    const list = JSON.parse((await run("runs", "list", "--json")).stdout);
    expect(list.map(({ runId }: { runId: string }) => runId)).toEqual(["b", "a"]);
    const some = await run("runs", "list", "--json", "--status", "cancelled", "--limit", "1");
    expect(JSON.parse(some.stdout)).toMatchObject([{ runId: "b", workflow: "place-order" }]);
    expect(await run("runs", "purge")).toMatchObject({ status: 0, stdout: "0 deleted\n" });
    const gone = await run("runs", "show", "c");
    expect(gone).toMatchObject({ status: 1, stdout: "" });
    expect(gone.stderr).toContain('run "c" does not exist');
    await remove();
  }, 120_000);

  test("runs cancel --wait tells how the run ended", async () => {
    const { run, runApart, order, remove } = await place();
    await order("a", "waits");
    const early = await run("runs", "cancel", "a", "--wait", "50ms");
    expect(early.status).toBe(75);
    expect(JSON.parse(early.stdout)).toEqual({ runId: "a", status: "parked" });
    const waiting = runApart("runs", "cancel", "a", "--wait", "60s");
    await run("runs", "resume", "a", ORDER);
    const ended = await waiting;
    expect(ended.status).toBe(0);
    expect(JSON.parse(ended.stdout)).toEqual({
      ...{ runId: "a", status: "cancelled", compensated: "yes" },
    });
    await order("b", "none");
    const completed = await run("runs", "cancel", "b", "--wait", "60s");
    expect(completed.status).toBe(1);
    expect(JSON.parse(completed.stdout)).toEqual({ runId: "b", status: "completed" });
    const bad = await run("runs", "cancel", "b", "--wait", "60");
    expect(bad.status).toBe(64);
    expect(bad.stderr).toContain("--wait 60 has no unit");
    await remove();
  }, 120_000);

  test("a cancelled run goes on after runs retry, and a completed one is refused", async () => {
    const { run, order, show, remove } = await place();
    await order("a", "waits");
    await run("runs", "cancel", "a");
    expect((await run("runs", "resume", "a", ORDER)).status).toBe(1);
    expect(await run("runs", "retry", "a")).toMatchObject({ status: 0, stdout: "reopened\n" });
    expect(await run("runs", "retry", "a")).toMatchObject({ status: 0, stdout: "open\n" });
    await run("runs", "signal", "a", "paid", "--payload", '{"amount":12}');
    const resumed = await run("runs", "resume", "a", ORDER);
    expect(JSON.parse(resumed.stdout)).toMatchObject({ output: { amount: 12 } });
    // The undone steps were executed again, and the first records are kept.
    const keys = (await show("a"))?.records.map(({ key }) => key) ?? [];
    expect(keys).toContain("reserve");
    expect(keys.some((key) => /^~old\/\d+\/reserve$/.test(key))).toBe(true);
    const completed = await run("runs", "retry", "a");
    expect(completed).toMatchObject({ status: 1, stdout: "" });
    expect(completed.stderr).toContain('run "a" has completed');
    const unknown = await run("runs", "retry", "none");
    expect(unknown).toMatchObject({ status: 1, stdout: "" });
    expect(unknown.stderr).toContain('run "none" does not exist');
    await remove();
  }, 120_000);

  test("runs retry takes several ids, or a status, and does not stop at a run that it cannot retry", async () => {
    const { file, remove } = await temporaryFile();
    const retry = (...args: readonly string[]) =>
      cliInProcess("runs", "retry", ...args, "--store", `sqlite:${file}`);
    const blockAll = async () => {
      await using shop = await open(`sqlite:${file}`);
      const [mail, order] = ["mail", "order"].map((name) =>
        workflow({ name, version: 1, input: z.null() }, async (ctx) => {
          void ctx.step("forgotten", async () => {});
        }),
      );
      const runtime = createRuntime(shop);
      for (const [id, type] of [
        ["a", mail],
        ["b", order],
        ["c", order],
      ] as const) {
        const outcome = await runtime.execute(type ?? expect.fail(), null, { id });
        expect(outcome).toMatchObject({ status: "blocked" });
      }
      await runtime.execute(noop, null, { id: "done" });
    };
    const statuses = async () => {
      await using shop = await open(`sqlite:${file}`);
      const runs = await shop.journal.list({});
      return Object.fromEntries(runs.map(({ runId, status }) => [runId, status]));
    };
    await blockAll();
    const two = await retry("a", "none", "done", "b");
    expect(two.status).toBe(1);
    expect(two.stdout.split("\n").toSorted()).toEqual(["", "a reopened", "b reopened"]);
    expect(two.stderr).toContain('run "none" does not exist');
    expect(two.stderr).toContain('run "done" has completed');
    await blockAll();
    const ofOrders = await retry("--status", "blocked", "--workflow", "order");
    expect(ofOrders.status).toBe(0);
    expect(ofOrders.stdout.split("\n").toSorted()).toEqual(["", "b reopened", "c reopened"]);
    expect(await statuses()).toEqual({ a: "blocked", b: "parked", c: "parked", done: "completed" });
    expect(await retry("--status", "blocked")).toMatchObject({ status: 0, stdout: "a reopened\n" });
    const none = await retry("--status", "blocked");
    expect(none).toMatchObject({ status: 0, stdout: "" });
    expect(none.stderr).toContain("no run is blocked");
    for (const wrong of [[], ["a", "--status", "failed"], ["a", "--workflow", "order"]]) {
      expect(await retry(...wrong)).toMatchObject({ status: 64, stdout: "" });
    }
    await remove();
  }, 120_000);

  test("runs retry-undo attempts a failed undo again, and changes what the run says", async () => {
    const { store, run, show, remove } = await place();
    const file = program("stuck");
    const start = ["run", file, "--id", "a", "--input", "null", ...store];
    const failed = await startCli(start, { env: { UNDO_STUCK: "1" } }).finished;
    expect(JSON.parse(failed.stdout)).toMatchObject({ status: "failed", compensated: "no" });
    const refused = await run("runs", "retry", "a");
    expect(refused).toMatchObject({ status: 1, stdout: "" });
    expect(refused.stderr).toContain("retry the undos first");
    const reopened = { status: 0, stdout: "reopened\n" };
    expect(await run("runs", "retry-undo", "a")).toMatchObject(reopened);
    expect((await run("runs", "resume", "a", file)).status).toBe(1);
    expect(await show("a")).toMatchObject({ status: "failed", ending: { compensated: "yes" } });
    const again = await run("runs", "retry-undo", "a");
    expect(again).toMatchObject({ status: 1, stdout: "" });
    expect(again.stderr).toContain('run "a" has no failed undo');
    await remove();
  }, 120_000);

  test("runs fork starts a new run with the results up to a step, once per id", async () => {
    const { run, order, show, remove } = await place();
    await order("a", "none");
    const args = ["runs", "fork", "a", "--from", "charge", "--as", "b"];
    for (let i = 0; i < 2; i += 1) {
      expect(await run(...args)).toMatchObject({ status: 0, stdout: "b\n" });
    }
    expect((await run("runs", "resume", "b", ORDER)).status).toBe(0);
    expect(await show("b")).toMatchObject({ status: "completed", origin: { runId: "a" } });
    const shown = await run("runs", "show", "b");
    expect(shown.stdout).toContain("forked from a at charge");
    expect((await run("runs", "show", "a")).stdout).toContain("forks  b");
    const unknown = await run("runs", "fork", "a", "--from", "none");
    expect(unknown).toMatchObject({ status: 1, stdout: "" });
    expect(unknown.stderr).toMatch(/no step "none"; its steps are .*charge/);
    const taken = await run("runs", "fork", "a", "--from", "charge", "--as", "a");
    expect(taken.stderr).toContain("is no fork");
    expect((await run("runs", "fork", "a")).stderr).toContain("from");
    await remove();
  }, 120_000);

  test("the input is read from a file or from standard input", async () => {
    const { folder, store, run, remove } = await place();
    const file = join(folder, "input.json");
    await writeFile(file, '{"orderId":"a"}');
    const args = ["run", ORDER, "--workflow", "place-order"];
    expect(await run(...args, "--input", `@${file}`)).toMatchObject({ status: 0 });
    const typed = onTerminal(...args, "--input", "-", ...store);
    typed.type('{"orderId":"b"}\n\u0004');
    expect(await typed.status).toBe(0);
    // A terminal shows each step when it is recorded.
    const steps =
      /reserve {2}ok.*\s+charge {2}ok.*\s+pack {2}asleep\s+pack {2}slept\s+\{"runId":"b"/;
    expect(typed.shown()).toMatch(steps);
    await remove();
  }, 120_000);

  test("a step may wait for what keeps no process alive; a module that never loads exits with 70", async () => {
    const { folder, store, runApart, remove } = await place();
    const steps = new URL("../../core/steps/index.ts", import.meta.url);
    const lazy = join(folder, "lazy.mjs");
    await writeFile(
      lazy,
      `import { workflow } from ${JSON.stringify(steps.href)};
      const nap = () => new Promise((resolve) => {
        AbortSignal.timeout(300).addEventListener("abort", () => resolve(7));
      });
      const input = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } };
      export const lazy = workflow({ name: "lazy", version: 1, input }, (ctx) => ctx.step("nap", nap));`,
    );
    const completed = await runApart("run", lazy, "--input", "null");
    expect(completed).toMatchObject({ status: 0, stdout: expect.stringContaining('"output":7') });
    const endless = join(folder, "endless.mjs");
    await writeFile(endless, "await new Promise(() => {});");
    const never = await startCli(["run", endless, "--input", "null", ...store]).finished;
    expect(never).toMatchObject({ status: 70, stderr: expect.stringContaining("never comes") });
    await remove();
  }, 120_000);

  test("a workflow that ends the process leaves a run without an outcome, which the command says", async () => {
    const { folder, runApart, remove } = await place();
    await using _ = { [Symbol.asyncDispose]: remove };
    const exits = join(folder, "exits.ts");
    const lockstep = JSON.stringify(new URL("../../core/steps/workflow.ts", import.meta.url));
    await writeFile(
      exits,
      `import { workflow } from ${lockstep};
       export const exits = workflow(
         { name: "exits", version: 1, input: { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } } },
         async () => process.exit(0),
       );`,
    );
    const { status, stdout, stderr } = await runApart("run", exits, ...input(null));
    expect({ status, stdout }).toEqual({ status: 70, stdout: "" });
    expect(stderr).toContain("the command was ended by process.exit()");
  });

  test("a number that JavaScript would round is refused", async () => {
    const { run, remove } = await place();
    const order = ["run", ORDER, "--workflow", "place-order"];
    const refused = await run(...order, "--input", '{"orderId":9007199254740993}');
    expect(refused).toMatchObject({ status: 64, stdout: "" });
    expect(refused.stderr).toContain("--input has a number beyond 2^53 - 1");
    await remove();
  });

  test("the timeline has colours on a terminal", async () => {
    const { store, order, remove } = await place();
    await order("a", "declined");
    const shown = onTerminal("runs", "show", "a", ...store);
    expect(await shown.status).toBe(0);
    expect(shown.shown()).toContain("\u001b[");
    expect(shown.shown()).toContain("undone");
    await remove();
  }, 120_000);

  test("an interrupted run finishes its step and is parked before the next one; --wait continues it", async () => {
    const { folder, store, show, remove } = await place();
    const log = join(folder, "log");
    await writeFile(log, "");
    const args = ["run", program("patient"), "--workflow", "patient", ...store];
    const patient = (millis: number, ...more: readonly string[]) =>
      startCli([...args, ...input({ id: "a", millis }), ...more], { env: { PATIENT_LOG: log } });
    const first = patient(6_000);
    await until(async () => (await readFile(log, "utf8")).includes("a begins"), 60_000);
    first.child.kill("SIGINT");
    const { status, stdout } = await first.finished;
    expect(status).toBe(75);
    expect(JSON.parse(stdout)).toMatchObject({ status: "suspended", reason: "deadline" });
    const second = patient(6_000, "--wait");
    expect(await second.finished).toMatchObject({ status: 0 });
    expect((await show("a"))?.records.map(({ key }) => key)).toEqual(["first", "second"]);
    await remove();
  }, 120_000);

  test("invalid input is named and exits with 64 before any action", async () => {
    const { folder, store, run, remove } = await place();
    const empty = join(folder, "empty.mjs");
    await writeFile(empty, "export const nothing = 1;");
    const broken = join(folder, "broken.mjs");
    await writeFile(broken, "throw new TypeError('mine');");
    const order = ["run", ORDER, "--workflow", "place-order"];
    const cases = [
      [["run", ORDER], "input"],
      [["run", ORDER, "--input", "{}"], "--workflow must say which of counter, noop, place-order"],
      [["run", "/no/such/file.ts", "--input", "{}"], "/no/such/file.ts"],
      [[...order, "--input", "{"], "--input is not JSON"],
      [[...order, "--input", "{}"], "orderId"],
      [[...order, "--input", "{}", "--wait", "--detach"], "mutually exclusive"],
      [[...order, "--input", "{}", "--id", ""], "--id"],
      [[...order, "--input", "{}", "--lease", "1"], "--lease"],
      [
        [...order, "--id", "big", ...input({ orderId: "x".repeat(3_000_000), trouble: "none" })],
        "bytes",
      ],
      [["run", empty, "--input", "{}"], "exports neither a workflow nor"],
      [["worker", ORDER, "--concurrency", "0"], "--concurrency"],
      [["worker", ORDER, "--drain", "soon"], "drain"],
      [["runs", "list", "--limit", "0"], "--limit"],
      [["runs", "signal", "a", "b", "--payload", "{"], "--payload is not JSON"],
      [["runs", "signal", "a", ""], "name"],
      [["orders", "fulfil", "--group", "0"], "--group"],
      [["orders", "add", "/no/such/file"], "/no/such/file"],
    ] as const;
    for (const [args, hint] of cases) {
      const { status, stdout, stderr } = await run(...args);
      expect({ args, status, stdout }).toEqual({ args, status: 64, stdout: "" });
      expect(stderr).toContain(hint);
      expect(stderr).not.toContain("    at ");
    }
    const other = await cliInProcess("runs", "list", "--store", "etcd://127.0.0.1:1");
    expect(other).toMatchObject({ status: 64, stderr: expect.stringContaining("has no journal") });
    // An error of the user's module is shown with its position.
    const own = await startCli(["run", broken, "--input", "{}", ...store]).finished;
    expect(own.status).toBe(70);
    expect(own.stderr).toContain(`${broken}:1`);
    await remove();
  }, 240_000);
});
