import { describe, expect, test } from "vitest";
import type { ScenarioReport, VariantReport } from "../../functions/oversell/scenarios/report.ts";
import { cli } from "../support/cli.ts";
import { needServers } from "../support/missing.ts";

async function play(name: string): Promise<(variant: string) => VariantReport | undefined> {
  await needServers("redlock");
  const { status, stdout, stderr } = await cli(
    ...["oversell", "--scenario", name, "--stock", "5", "--json"],
  );
  expect(stderr).toBe("");
  expect(status).toBe(0);
  const report: ScenarioReport = JSON.parse(stdout);
  expect(report).toMatchObject({ scenario: name, stock: 5 });
  expect(report.resource).toContain("SQLite");
  return (variant) => report.variants.find(({ name: each }) => each === variant);
}

const OVERSOLD = { claimsSafe: false, holders: 2, sold: 10, oversold: 5, refused: 0 };
const REFUSED = { claimsSafe: true, holders: 2, sold: 5, oversold: 0, refused: 5 };
const ALONE = { claimsSafe: false, holders: 1, sold: 5, oversold: 0, refused: 0 };

describe.concurrent("oversell --scenario", () => {
  test("the scenario failover has two holders, and only the fence prevents overselling", async () => {
    const of = await play("failover");
    expect(of("lock alone")).toMatchObject(OVERSOLD);
    expect(of("claimed fence, conditional decrement")).toMatchObject(REFUSED);
    expect(of("the same, with equal fences")).toMatchObject(REFUSED);
    expect(of("lock alone, with replicas=1")).toMatchObject(ALONE);
  });

  test("the scenario split-brain has a holder on each master, and only the fence prevents overselling", async () => {
    const of = await play("split-brain");
    expect(of("lock alone")).toMatchObject(OVERSOLD);
    expect(of("claimed fence, conditional decrement")).toMatchObject(REFUSED);
    expect(of("the same, the old primary's client last")).toMatchObject(REFUSED);
    expect(of("lock alone, with replicas=1")).toMatchObject(ALONE);
  });

  test("the scenario clock-jump has two holders, and only the fence prevents overselling", async () => {
    const of = await play("clock-jump");
    expect(of("lock alone, two of five clocks")).toMatchObject(ALONE);
    expect(of("lock alone, three of five clocks")).toMatchObject(OVERSOLD);
    expect(of("claimed fence, conditional decrement")).toMatchObject(REFUSED);
  });

  test("the option --scenario excludes the options of the incident", async () => {
    const options = [["--strategy", "renewed"], ["--picture", "a.svg"], ["--no-renewal"]];
    const finished = options.map((option) => cli("oversell", "--scenario", "failover", ...option));
    for (const { status } of await Promise.all(finished)) expect(status).toBe(64);
  });
});
