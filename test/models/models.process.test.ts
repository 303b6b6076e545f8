import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { cells } from "../support/matrix.ts";
import { MODELS, search } from "./spin.ts";

test("each model of the folder is searched", () => {
  const files = readdirSync(import.meta.dirname).filter((file) => file.endsWith(".pml"));
  expect(files.map((file) => file.slice(0, -4)).sort()).toEqual(
    MODELS.map(({ name }) => name).sort(),
  );
});

describe.each(MODELS)("the model $name", ({ name, mutants }) => {
  test("holds in all its states", async () => {
    const { violation, states, depth } = await search(name);
    process.stdout.write(`model ${name}: ${states} states, ${depth} steps deep, no violation\n`);
    expect(violation).toBeUndefined();
    // Fewer would mean that the clients never meet.
    expect(states).toBeGreaterThan(1_000);
  });

  test.each(cells(mutants))("is violated by its mutant %s", async (mutant) => {
    const { violation, states } = await search(name, mutant);
    process.stdout.write(`model ${name}, mutant ${mutant}: ${violation} after ${states} states\n`);
    expect(violation).toMatch(/assertion violated|invalid end state/);
  });

  test("reads each of its mutants", () => {
    const source = readFileSync(new URL(`${name}.pml`, import.meta.url), "utf8");
    for (const mutant of mutants) {
      expect(source).toMatch(new RegExp(`^#(?:if|ifn?def|elif).*\\b${mutant}\\b`, "m"));
      expect(source.slice(0, source.indexOf("*/"))).toContain(mutant);
    }
  });
});
