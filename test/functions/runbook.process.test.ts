import { execFile } from "node:child_process";
import { chmod, copyFile, mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { z } from "zod";
import { stockLock } from "../../core/inventory/inventory.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { cli, MAIN } from "../support/cli.ts";
import { blocksOf, pageAt } from "../support/docs.ts";
import { WHOLE_MATRIX } from "../support/matrix.ts";
import { temporaryFile } from "../support/under-test.ts";

const steps = fileURLToPath(new URL("../../core/steps/index.ts", import.meta.url));

/** Waits for a payment, and longer after it: the run never ends by itself. */
const MODULE = `
import { workflow } from ${JSON.stringify(steps)};
import { z } from ${JSON.stringify(import.meta.resolve("zod"))};
export const order = workflow({ name: "order", version: 1, input: z.null() }, async (ctx) => {
  await ctx.waitFor("paid", z.object({ amount: z.number() }));
  await ctx.sleep("delivery", "1d");
});
`;

test.runIf(WHOLE_MATRIX)(
  "the commands of the runbook do what it says",
  { timeout: 240_000 },
  async () => {
    const { file, remove } = await temporaryFile();
    await using shop = await openSqlite(file);
    const lines = blocksOf(pageAt("docs/operations.md"), "sh")
      .flatMap((code) => code.split("\n"))
      .map((line) => line.replace(/#.*/, "").trim())
      .filter(Boolean);
    expect(lines.length).toBeGreaterThan(15);

    // Two runs that do not go on, and a lock whose holder hangs.
    const order = workflow({ name: "order", version: 1, input: z.null() }, async (ctx) => {
      await ctx.waitFor("paid", z.object({ amount: z.number() }));
      await ctx.sleep("delivery", "1d");
    });
    const broken = workflow({ name: "broken", version: 1, input: z.null() }, async (ctx) => {
      void ctx.step("forgotten", async () => {});
    });
    const { journal, locks } = shop;
    const runtime = createRuntime({ journal, locks, workflows: [order, broken] });
    await runtime.start(order, null, { id: "order-7" });
    expect(await runtime.execute(order, null, { id: "order-7" })).toMatchObject({
      status: "suspended",
    });
    expect(await runtime.execute(broken, null, { id: "order-8" })).toMatchObject({
      status: "blocked",
    });
    const lock = await locks.lock("nightly-report", { ttl: "1h", wait: "1m" });
    await shop.inventory.set({ sku: "teapot", quantity: 1, operationId: "count" });

    const folder = dirname(file);
    await writeFile(join(folder, "order.mjs"), MODULE);
    await mkdir(join(folder, "bin"));
    const command = join(folder, "bin/lockstep");
    await writeFile(command, `#!/bin/sh\nexec "${process.execPath}" "${MAIN}" "$@"\n`);
    await chmod(command, 0o755);
    const env = {
      ...process.env,
      PATH: `${join(folder, "bin")}:${process.env.PATH}`,
      LOCKSTEP_STORE: `sqlite:${file}`,
    };
    const listed = await inShell("lockstep runs list --status blocked --json", {
      cwd: folder,
      env,
    });
    expect(listed.output).toContain('"code":"MISUSE"');
    const shown = new Map<string, string>();
    for (const line of lines) {
      const words = line.replace("FENCE", String(lock.fence));
      const { status, output } = await inShell(words, { cwd: folder, env });
      // A run that waits again.
      const expected = line.includes("runs resume") ? 75 : 0;
      expect(status, `${line}: ${output}`).toBe(expected);
      shown.set(line, output);
    }

    const outputOf = (start: string) =>
      [...shown].find(([line]) => line.startsWith(start))?.[1] ?? "";
    expect(outputOf("lockstep top")).toContain("nightly-report");
    expect(outputOf("lockstep inspect")).toContain(String(lock.fence));
    expect(outputOf("lockstep release")).toContain('"fencedOut":true');
    expect(outputOf("lockstep runs list --status blocked")).toMatch(/order-8 .*blocked \(MISUSE\)/);
    expect(outputOf("lockstep runs show order-8")).toContain("MISUSE");
    expect(outputOf("lockstep runs retry order-8")).toContain("reopened");
    const raise = lines.find((line) => line.includes("raise-generation --at-least 2")) ?? "";
    expect(shown.get(raise)).toContain("generation 2");
    expect(await lock.unlock()).toBe("was-lost");
    const next = await locks.lock("nightly-report", { ttl: "1m", wait: "1m" });
    expect(next.fence.generation).toBeGreaterThan(2);
    await next.unlock();
    // With a store of locks, that one's generation is raised.
    const two = { ...env, LOCKSTEP_LOCKS: `sqlite:${file}.locks` };
    const raised = await inShell(raise, { cwd: folder, env: two });
    expect(raised.output).toContain("generation 2");
    expect(raised.output).toContain(".locks\n");
    // Commands of locks alone, and those that show both, look there as well.
    const there = await openSqlite(`${file}.locks`);
    const held = await there.locks.lock("export", { ttl: "1m", wait: "1m" });
    for (const words of ["lockstep list", "lockstep inspect export", "lockstep top"]) {
      const { output } = await inShell(words, { cwd: folder, env: two });
      expect(output, words).toContain("│ export │");
    }
    const busy = await inShell("lockstep lock export --wait 0", { cwd: folder, env: two });
    expect(busy.status).toBe(75);
    const doctor = await inShell("lockstep doctor", { cwd: folder, env: two });
    expect(doctor.output.match(/ok {7}reachable/g)).toHaveLength(2);
    await held.unlock();
    await there.close();
    await remove();
  },
);

test("after a restore every new holder is refused, by an error that names the cure, until the generation is raised", async () => {
  const { file, remove } = await temporaryFile();
  const backup = `${file}.backup`;
  const sell = async (operationId: string) => {
    await using shop = await openSqlite(`${file}.stock`);
    await using store = await openSqlite(file);
    const options = { ttl: "1m", wait: "1m" } as const;
    return await store.locks.withLock(stockLock("cup"), options, ({ fence }) =>
      shop.inventory.decrement({ sku: "cup", quantity: 1, operationId, fence }),
    );
  };
  {
    await using shop = await openSqlite(`${file}.stock`);
    await shop.inventory.set({ sku: "cup", quantity: 9, operationId: "count" });
    await using _ = await openSqlite(file);
  }
  await copyFile(file, backup);
  await sell("order-1");
  await sell("order-2");
  for (const name of await readdir(dirname(file))) {
    if (name.startsWith("test.db-")) await rm(join(dirname(file), name));
  }
  await copyFile(backup, file);
  const refusal = await sell("order-3").catch((error: unknown) => error);
  expect(refusal).toMatchObject({ code: "FENCED_OUT" });
  const [cure = ""] = /raise-generation --at-least \d+/.exec(String(refusal)) ?? [];
  expect(await cli(...cure.split(" "), "--store", `sqlite:${file}`)).toMatchObject({ status: 0 });
  expect(await sell("order-3")).toMatchObject({ outcome: "applied", remaining: 6 });
  await remove();
});

interface Ended {
  readonly status: number;
  readonly output: string;
}

function inShell(
  line: string,
  options: { readonly cwd: string; readonly env: NodeJS.ProcessEnv },
): Promise<Ended> {
  return new Promise((resolve) => {
    execFile("sh", ["-c", line], options, (error, stdout, stderr) => {
      const status = typeof error?.code === "number" ? error.code : error ? -1 : 0;
      resolve({ status, output: `${stdout}${stderr}` });
    });
  });
}
