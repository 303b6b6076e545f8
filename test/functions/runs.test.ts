import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { open } from "../../infra/open.ts";
import { cli, onTerminal, startCli } from "../support/cli.ts";
import { temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

const program = (name: string) => fileURLToPath(new URL(`../programs/${name}.ts`, import.meta.url));
const ORDER = program("order");

/** A store of its own, and the command line on it. */
async function place() {
  const { file, remove } = await temporaryFile();
  const store = ["--store", `sqlite:${file}`];
  const run = (...args: readonly string[]) => startCli([...args, ...store]).finished;
  const order = (orderId: string, trouble: string, ...more: readonly string[]) =>
    run("run", ORDER, "--workflow", "place-order", ...input({ orderId, trouble }), ...more);
  /** As the journal has it. */
  const show = async (runId: string) => {
    await using opened = await open(`sqlite:${file}`);
    return opened.journal?.show(runId);
  };
  return { folder: dirname(file), store, run, order, show, remove };
}

function input(value: unknown): readonly string[] {
  return ["--input", JSON.stringify(value)];
}

describe.concurrent("lockstep run and lockstep runs", () => {
  test("a run's outcome is printed, and its exit status tells a script", async () => {
    const { run, order, show, remove } = await place();
    const completed = await order("a", "flaky");
    expect(completed).toMatchObject({ status: 0, stderr: "" });
    expect(JSON.parse(completed.stdout)).toEqual({
      runId: "a",
      status: "completed",
      output: { orderId: "a" },
    });
    expect(await order("a", "flaky")).toEqual(completed);
    const other = await order("a", "none");
    expect(other).toMatchObject({ status: 1, stdout: "" });
    expect(other.stderr).toContain("another input");
    const failed = await order("b", "declined");
    expect(failed.status).toBe(1);
    expect(JSON.parse(failed.stdout)).toMatchObject({
      status: "failed",
      error: { code: "DECLINED" },
      compensated: true,
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

  test("a run that waits is parked, woken by a signal, and gone on with by another process", async () => {
    const { run, order, remove } = await place();
    expect(await order("a", "waits")).toMatchObject({
      status: 75,
      stdout: '{"runId":"a","status":"suspended","reason":"signal"}\n',
    });
    expect((await run("runs", "list", "--status", "parked")).stdout).toContain("parked (signal)");
    const pay = ["runs", "signal", "a", "paid", "--payload", '{"amount":12}', "--dedupe-id", "1"];
    expect(await run(...pay)).toMatchObject({ status: 0, stdout: "delivered\n" });
    expect(await run(...pay)).toMatchObject({ status: 0, stdout: "duplicate\n" });
    const resumed = await run("runs", "resume", "a", ORDER);
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

  test("a detached run is begun and left to others; a cancelled one is undone", async () => {
    const { run, order, show, remove } = await place();
    expect(await order("a", "none", "--detach")).toMatchObject({ status: 0 });
    expect(await show("a")).toMatchObject({ status: "parked", records: [] });
    await order("b", "waits");
    expect(await run("runs", "cancel", "b")).toMatchObject({ status: 0, stdout: "requested\n" });
    const cancelled = await run("runs", "resume", "b", ORDER);
    expect(cancelled.status).toBe(1);
    expect(JSON.parse(cancelled.stdout)).toMatchObject({ error: { code: "RUN_CANCELLED" } });
    expect(await show("b")).toMatchObject({ status: "cancelled", ending: { compensated: true } });
    expect(await run("runs", "cancel", "b")).toMatchObject({ status: 1, stdout: "ended\n" });
    const list = JSON.parse((await run("runs", "list", "--json")).stdout);
    expect(list.map(({ runId }: { runId: string }) => runId)).toEqual(["b", "a"]);
    const some = await run("runs", "list", "--json", "--status", "cancelled", "--limit", "1");
    expect(JSON.parse(some.stdout)).toMatchObject([{ runId: "b", workflow: "place-order" }]);
    expect(await run("runs", "purge")).toMatchObject({ status: 0, stdout: "0 forgotten\n" });
    const gone = await run("runs", "show", "c");
    expect(gone).toMatchObject({ status: 1, stdout: "" });
    expect(gone.stderr).toContain('no run "c"');
    await remove();
  }, 120_000);

  test("the input may stand in a file or come over standard input", async () => {
    const { folder, store, run, remove } = await place();
    const file = join(folder, "input.json");
    await writeFile(file, '{"orderId":"a"}');
    const args = ["run", ORDER, "--workflow", "place-order"];
    expect(await run(...args, "--input", `@${file}`)).toMatchObject({ status: 0 });
    const typed = onTerminal(...args, "--input", "-", ...store);
    typed.type('{"orderId":"b"}\n\u0004');
    expect(await typed.status).toBe(0);
    // On a terminal, the steps are shown as they happen.
    const steps =
      /reserve {2}ok.*\s+charge {2}ok.*\s+pack {2}asleep\s+pack {2}slept\s+\{"runId":"b"/;
    expect(typed.shown()).toMatch(steps);
    await remove();
  }, 120_000);

  test("the picture has colours on a terminal", async () => {
    const { store, order, remove } = await place();
    await order("a", "declined");
    const shown = onTerminal("runs", "show", "a", ...store);
    expect(await shown.status).toBe(0);
    expect(shown.shown()).toContain("\u001b[");
    expect(shown.shown()).toContain("undone");
    await remove();
  }, 120_000);

  test("interrupted, a run finishes its step and is parked before the next; --wait goes on with it", async () => {
    const { folder, store, show, remove } = await place();
    const log = join(folder, "log");
    await writeFile(log, "");
    const args = ["run", program("patient"), "--workflow", "patient", ...store];
    const patient = (millis: number, ...more: readonly string[]) =>
      startCli([...args, ...input({ id: "a", millis }), ...more], { env: { PATIENT_LOG: log } });
    const first = patient(1_500);
    await until(async () => (await readFile(log, "utf8")).includes("a begins"), 60_000);
    first.child.kill("SIGINT");
    const { status, stdout } = await first.finished;
    expect(status).toBe(75);
    expect(JSON.parse(stdout)).toMatchObject({ status: "suspended", reason: "deadline" });
    const second = patient(1_500, "--wait");
    expect(await second.finished).toMatchObject({ status: 0 });
    expect((await show("a"))?.records.map(({ key }) => key)).toEqual(["first", "second"]);
    await remove();
  }, 120_000);

  test("bad input is named, and exits with 64 before anything happens", async () => {
    const { folder, store, run, remove } = await place();
    const empty = join(folder, "empty.mjs");
    await writeFile(empty, "export const nothing = 1;");
    const broken = join(folder, "broken.mjs");
    await writeFile(broken, "throw new TypeError('mine');");
    const order = ["run", ORDER, "--workflow", "place-order"];
    const cases = [
      [["run", ORDER], "input"],
      [["run", ORDER, "--input", "{}"], "--workflow must say which of noop, place-order"],
      [["run", "/no/such/file.ts", "--input", "{}"], "/no/such/file.ts"],
      [[...order, "--input", "{"], "--input is not JSON"],
      [[...order, "--input", "{}"], "orderId"],
      [[...order, "--input", "{}", "--wait", "--detach"], "mutually exclusive"],
      [[...order, "--input", "{}", "--id", ""], "--id"],
      [[...order, "--input", "{}", "--lease", "1"], "--lease"],
      [["run", empty, "--input", "{}"], "exports no workflow"],
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
    const other = await cli("runs", "list", "--store", "memory:");
    expect(other).toMatchObject({ status: 64, stderr: expect.stringContaining("database") });
    // What a module throws is its own fault, and shown with its place.
    const own = await startCli(["run", broken, "--input", "{}", ...store]).finished;
    expect(own.status).toBe(70);
    expect(own.stderr).toContain(`${broken}:1`);
    await remove();
  }, 240_000);
});
