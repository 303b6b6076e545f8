import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { pageAt } from "../support/docs.ts";
import { isProven, proofPage } from "./page.ts";
import type { Proof } from "./prove.ts";

const read = (name: string) =>
  JSON.parse(readFileSync(new URL(`../../docs/${name}`, import.meta.url), "utf8"));
const proof: Proof = read("proof.json");

test("the page of the proof is made from its results", () => {
  expect(pageAt("docs/proof.md")).toBe(proofPage(proof, read("peers.json")));
});

test("a proof needs every mutant caught, late holders refused, and no violation", () => {
  const { simulation, mutants, campaigns, models } = proof;
  expect(isProven(proof)).toBe(true);
  const failure = {
    seed: 1,
    violations: [{ check: "stock", detail: "a unit is missing" } as const],
  };
  const missed = mutants.map((one) => ({ ...one, caughtBy: undefined }));
  const violated = models.map((model) => ({ ...model, violation: "assertion violated" }));
  const withVerdict = (verdict: "failed" | "unknown") =>
    campaigns.map((report) => ({ ...report, verdict }));
  for (const change of [
    { simulation: { ...simulation, failure } },
    { simulation: { ...simulation, lateRefused: 0 } },
    { mutants: missed },
    { models: violated },
    { campaigns: withVerdict("failed") },
    { campaigns: withVerdict("unknown") },
  ]) {
    expect(isProven({ ...proof, ...change })).toBe(false);
  }
});
