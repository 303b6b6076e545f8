import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { isWrong, type StrategyReport } from "../../functions/oversell/report.ts";
import type { StoryReport } from "../../functions/oversell/story.ts";
import { cli } from "../support/cli.ts";
import { incidentStores } from "../support/incident-stores.ts";
import { temporaryFile } from "../support/under-test.ts";

test("--wide prints all figures of each strategy in one row", async () => {
  const { file, remove } = await temporaryFile();
  const size = ["--stock", "4", "--buyers", "8", "--workers", "2", "--slow", "0", "--freezes", "0"];
  const names = ["--strategy", "decrement", "--strategy", "lockstep", "--duplicates", "0"];
  const { stdout } = await cli(
    "oversell",
    "--wide",
    "--store",
    `sqlite:${file}`,
    ...size,
    ...names,
  );
  const lines = stdout.trimEnd().split("\n");
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(142);
  const rows = lines
    .filter((line) => line.startsWith("│"))
    .map((line) => line.split("│").map((cell) => cell.trim()));
  const [head = [], ...figures] = rows;
  expect(head).toEqual(expect.arrayContaining(["strategy", "lost", "overlaps", "p99 ms", "safe?"]));
  expect(figures.map(([, name]) => name)).toEqual(["decrement", "lockstep"]);
  const of = (column: string) => figures[1]?.[head.indexOf(column)];
  expect([of("sold"), of("oversold"), of("lost"), of("duplicates")]).toEqual(["4", "0", "0", "0"]);
  for (const column of ["p50 ms", "p99 ms", "orders/s"]) expect(of(column)).toMatch(/^\d/);
  await remove();
});

test("switches make a custom strategy; the picture and the trace show the holders over time", async () => {
  const { file, remove } = await temporaryFile();
  const picture = join(dirname(file), "incident.svg");
  const trace = join(dirname(file), "incident.trace.json");
  const store = ["--store", `sqlite:${file}`, "--picture", picture, "--trace", trace];
  const size = [
    "--stock",
    "6",
    "--buyers",
    "12",
    "--workers",
    "3",
    "--slow",
    "1",
    "--freezes",
    "1",
  ];
  const { stdout, status } = await cli("oversell", "--release", "owner-checked", ...size, ...store);
  expect(status).toBe(0);
  expect(stdout).toContain("custom");
  const svg = await readFile(picture, "utf8");
  expect(svg).toMatch(/^<svg /);
  expect(svg).toContain("process 3");
  expect(svg).toContain("custom (lock only):");
  const { traceEvents } = JSON.parse(await readFile(trace, "utf8"));
  expect(traceEvents[0]).toMatchObject({
    name: "process_name",
    args: { name: expect.stringMatching(/^custom: sold /) },
  });
  await remove();
});

test("the report is printed although the picture cannot be written", async () => {
  const { file, remove } = await temporaryFile();
  const size = ["--stock", "4", "--buyers", "8", "--workers", "2", "--slow", "0", "--freezes", "0"];
  const store = ["--store", `sqlite:${file}`, "--strategy", "lockstep", "--json"];
  const run = await cli("oversell", ...size, ...store, "--picture", dirname(file));
  expect(run.status).toBe(73);
  expect(JSON.parse(run.stdout).strategies).toMatchObject([{ name: "lockstep", sold: 4 }]);
  expect(run.stderr).toContain("picture");
  expect(run.stderr).not.toContain("    at ");
  const nowhere = await cli("oversell", ...store, "--picture", "/no/such/folder/x.svg");
  expect(nowhere).toMatchObject({ status: 73, stdout: "" });
  expect(nowhere.stderr).toContain("--picture");
  expect(nowhere.stderr).not.toContain("    at ");
  await remove();
});

test("the story begins with a slow service alone, and adds one fault after another", async () => {
  const { file, remove } = await temporaryFile();
  const size = ["--stock", "3", "--buyers", "5", "--workers", "2", "--ttl", "100ms"];
  const faults = ["--freezes", "1", "--kills", "0", "--duplicates", "1"];
  const only = ["--strategy", "lockstep", "--store", `sqlite:${file}`];
  const { stdout, status } = await cli(
    "oversell",
    "--story",
    "--json",
    ...only,
    ...size,
    ...faults,
  );
  const { parts }: StoryReport = JSON.parse(stdout);
  expect(parts.map(({ adds }) => adds)).toEqual([
    "slow service",
    "+ freezes",
    "+ kills",
    "+ repeats",
  ]);
  for (const { strategies, firstWrong } of parts) {
    expect(strategies).toMatchObject([{ name: "lockstep", sold: 3, oversold: 0 }]);
    expect(firstWrong).toEqual([]);
  }
  expect(status).toBe(0);
  await remove();
});

describe.concurrent.each(incidentStores.filter(([name]) => ["sqlite", "redis"].includes(name)))(
  "the story on %s, told by the command",
  (_, make) => {
    test("oversells by its own cause alone, and each other fault breaks one more way to sell", async () => {
      const { url, remove } = await make();
      const names = ["as-in-the-incident", "renewed", "decrement", "lockstep"];
      const size = ["--stock", "8", "--buyers", "24", "--workers", "4", "--duplicates", "8"];
      // Redis counts the expiry of the incident's own lock in seconds.
      const ways = [...names.flatMap((name) => ["--strategy", name]), "--ttl", "100ms"];
      const { stdout, status } = await cli(
        "oversell",
        ...["--story", "--json", "--store", url, ...ways, ...size],
      );
      const { parts }: StoryReport = JSON.parse(stdout);
      const of = (part: number, name: string) =>
        parts[part]?.strategies.find((one) => one.name === name) as StrategyReport;
      const [slow, freezes, kills, repeats] = [0, 1, 2, 3] as const;
      expect(of(slow, "as-in-the-incident").oversold).toBeGreaterThan(0);
      expect(of(slow, "as-in-the-incident").overlaps).toBeGreaterThan(0);
      expect(parts[slow]?.firstWrong).toContain("as-in-the-incident");
      // All three parts have freezes, and in one of them a frozen holder writes after others have sold.
      const withFreezes = [freezes, kills, repeats].map((part) => of(part, "renewed"));
      expect(withFreezes.some(isWrong)).toBe(true);
      for (const part of [slow, freezes, kills]) expect(isWrong(of(part, "decrement"))).toBe(false);
      expect(parts[repeats]?.firstWrong).toEqual(["decrement"]);
      expect(of(repeats, "decrement").duplicates).toBeGreaterThan(0);
      for (const part of [slow, freezes, kills, repeats])
        expect(of(part, "lockstep")).toMatchObject({
          sold: 8,
          oversold: 0,
          lost: 0,
          duplicates: 0,
        });
      expect(status).toBe(0);
      await remove();
    });
  },
);

test("a replay leaves no rows in the database", async () => {
  const { DatabaseSync } = await import("node:sqlite");
  const { file, remove } = await temporaryFile();
  const size = ["--stock", "4", "--buyers", "8", "--workers", "2", "--slow", "0", "--freezes", "0"];
  await cli("oversell", ...size, "--store", `sqlite:${file}`);
  const database = new DatabaseSync(file);
  const tables = database
    .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'lockstep%'")
    .all()
    .map(({ name }) => String(name))
    .filter((name) => !["lockstep_migration", "lockstep_store"].includes(name));
  expect(tables.length).toBeGreaterThan(6);
  for (const table of tables) {
    expect(database.prepare(`SELECT '${table}' AS t, COUNT(*) AS n FROM ${table}`).get()).toEqual({
      t: table,
      n: 0,
    });
  }
  database.close();
  await remove();
});
