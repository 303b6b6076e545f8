import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { measuredCode, nameCode } from "../support/commit.ts";
import { pageAt } from "../support/docs.ts";
import { isProven, proofPage } from "./page.ts";
import { addCampaigns, type Proof, QUICK } from "./prove.ts";

const read = (name: string) =>
  JSON.parse(readFileSync(new URL(`../../docs/${name}`, import.meta.url), "utf8"));
const proof: Proof = read("proof.json");

test("the page of the proof is made from its results", () => {
  expect(pageAt("docs/proof.md")).toBe(proofPage(proof, read("peers.json"), read("soak.json")));
});

test("a proof needs every mutant caught, late holders refused, and no violation", () => {
  const { simulation, mutants, campaigns, models } = proof;
  expect(isProven(proof)).toBe(true);
  const failure = {
    seed: 1,
    violations: [{ check: "stock", detail: "a unit is missing" } as const],
  };
  const replay = { schedules: 500, histories: 1_000, events: 20_000 };
  const refusal = "the model stock has no path for a sale ok";
  const missed = mutants.map((one) => ({ ...one, caughtBy: undefined }));
  const violated = models.map((model) => ({ ...model, violation: "assertion violated" }));
  const withVerdict = (verdict: "failed" | "unknown") =>
    campaigns.map((report) => ({ ...report, verdict }));
  for (const change of [
    { simulation: { ...simulation, failure } },
    { simulation: { ...simulation, lateRefused: 0 } },
    { replay: { ...replay, refusal } },
    { mutants: missed },
    { models: violated },
    { campaigns: withVerdict("failed") },
    { campaigns: withVerdict("unknown") },
  ]) {
    expect(isProven({ ...proof, ...change })).toBe(false);
  }
  expect(isProven({ ...proof, replay })).toBe(true);
  const { replay: _, ...withoutReplay } = proof;
  expect(isProven(withoutReplay)).toBe(false);
});

test("the page tells what was not tested, by store, and the code that was", () => {
  const campaigns = proof.campaigns.filter(({ store }) => store === "postgres");
  const { addedBy: _, ...rest } = proof;
  const page = proofPage(
    { ...rest, campaigns, commit: "1a2b3c4+" },
    read("peers.json"),
    read("soak.json"),
  );
  expect(page).toContain("on the code of commit `1a2b3c4` with changes");
  const rows = page.split("\n").filter((line) => line.startsWith("|"));
  expect(rows.find((row) => row.includes("| none | all:"))).toContain("sqlite, mariadb, mysql");
  expect(rows.find((row) => row.startsWith("| postgres |"))).toMatch(
    /\| \d+ s, [1-9]\d* late holders \|/,
  );
  expect(rows.find((row) => row.startsWith("| every store |"))).toContain("leader killed");
  expect(rows).toContain(
    "| undo and cancellation | journal | undone, cancelled, no work after the end | none |",
  );
});

test("a proof and a campaign name the commit that is checked out", () => {
  const { commit } = measuredCode();
  const head = execFileSync("git", ["rev-parse", "HEAD"], { encoding: "utf8" });
  expect(head.startsWith(commit?.replace("+", "") ?? "")).toBe(true);
  expect(nameCode({ commit: "1a2b3c4" })).toBe("commit `1a2b3c4`");
  expect(nameCode({})).toBe("an unknown commit");
});

test("the page counts the histories that were replayed, and tells the event without a path", () => {
  const models = {
    fence: { replayed: 9_000, recorded: 12_000 },
    validity: { replayed: 4_000, recorded: 4_000 },
  };
  const replay = { schedules: 500, histories: 1_000, events: 20_000, models, refusal: "a sale ok" };
  const campaigns = proof.campaigns.map((report) => ({
    ...report,
    store: "sqlite",
    replay: { histories: 35, events: 600 },
  }));
  const page = proofPage({ ...proof, replay, campaigns }, read("peers.json"), read("soak.json"));
  expect(page).toContain(
    "| simulation, 500 schedules | fence (9,000 of 12,000 events), validity | 1,000 | 20,000 | a sale ok |",
  );
  expect(page).toContain("| campaign on sqlite | not recorded | 35 | 600 | none |");
});

test("the page tells the schedules per minute, and each campaign that failed", () => {
  const simulation = { ...proof.simulation, schedules: 9_000, seconds: 180 };
  const failure = { store: "etcd", version: "3.4", date: "2026-01-02", account: "It was slow." };
  const failedCampaigns = [{ ...failure, operations: 5_000 }];
  const changed = { ...proof, simulation, failedCampaigns };
  const page = proofPage(changed, read("peers.json"), read("soak.json"));
  expect(page).toContain("| schedules per minute | 3,000 |");
  expect(page).toContain(
    "- **A campaign that failed**: one on etcd 3.4 with 5,000 operations, on 2026-01-02.\n  It was slow.",
  );
});

test("a run without campaigns keeps those of the last one, and those that failed", async () => {
  const nothing = () => {};
  const bounds = { ...QUICK, stores: [], log: nothing, onProgress: nothing, onFailure: nothing };
  expect(await addCampaigns(proof, bounds)).toEqual(proof);
});
