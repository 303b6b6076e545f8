import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { pageAt } from "./support/docs.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const page = pageAt("docs/defects.md");
const rows = page.split("\n").filter((line) => /^\| .* \|$/.test(line));
const commands = [...page.matchAll(/`npx vitest run (\S+) -t "([^"]+)"`/g)];

test("each defect has a command of its own, and the page says how many there are", () => {
  const [, , ...defects] = rows;
  expect(commands).toHaveLength(defects.length);
  expect(new Set(commands.map(([, , name]) => name)).size).toBe(defects.length);
  expect(page).toContain(`: ${defects.length} so far`);
});

test("the tests that reproduce the defects are there", () => {
  for (const [, file = "", name = ""] of commands) {
    expect(
      textsOf(file).some((text) => text.includes(name)),
      `${file}: ${name}`,
    ).toBe(true);
    // vitest takes the name for a regular expression.
    expect(name, file).not.toMatch(/[()[\]{}?*+^$|\\]/);
  }
});

/** The texts of a test and of the suites that it shares with the tests of other stores. */
function textsOf(path: string, seen = new Set<string>()): readonly string[] {
  if (seen.has(path)) return [];
  seen.add(path);
  const text = readFileSync(join(ROOT, path), "utf8");
  const imports = [...text.matchAll(/from "(\.[^"]+\.ts)"/g)];
  const paths = imports.map(([, relative = ""]) => join(dirname(path), relative));
  const suites = paths.filter((each) => each.startsWith("test/conformance/"));
  return [text, ...suites.flatMap((each) => textsOf(each, seen))];
}
