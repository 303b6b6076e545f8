import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { CHAPTERS } from "../docs/site/chapters.ts";
import { KINDS, RUNS, ratioOf } from "./bench/beside-dbos.ts";
import type { Benchmarks } from "./bench/page.ts";
import { type PeersRuns, servicesOf } from "./peers/page.ts";
import { anchorsOf, blocksOf, examples, linksOf, pageAt, pages } from "./support/docs.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

test("the docs show only programs that stand in examples, and show all of them", () => {
  const programs = [...examples].filter(([name]) => /\.(ts|mjs|js)$/.test(name));
  const shown = [...pages.values()].flatMap((page) => blocksOf(page, "ts", "js"));
  for (const code of shown) expect([...examples.values()]).toContain(code);
  const mentioned = [...pages.values()].join("\n");
  for (const [name, code] of programs) {
    expect(shown.includes(code) || mentioned.includes(name), name).toBe(true);
  }
});

test("every link leads to a file and a section that exist", () => {
  for (const [path, text] of pages) {
    for (const link of linksOf(text)) {
      if (/^https?:/.test(link)) continue;
      const [file = "", section] = link.split("#");
      const target = file === "" ? path : normalize(join(dirname(path), file));
      expect(existsSync(join(root, target)), `${path} links to ${link}`).toBe(true);
      if (!section) continue;
      const anchors = anchorsOf(pages.get(target) ?? "");
      expect(anchors, `${path} links to ${link}`).toContain(decodeURI(section));
    }
  }
});

test("every page can be reached from the README", () => {
  const reached = new Set(["README.md"]);
  for (const path of reached) {
    for (const link of linksOf(pages.get(path) ?? "")) {
      const target = normalize(join(dirname(path), link.split("#")[0] ?? ""));
      if (pages.has(target)) reached.add(target);
    }
  }
  expect([...pages.keys()].filter((path) => !reached.has(path))).toEqual([]);
});

test("the site has every page of the book in one chapter", () => {
  const book = [...pages.keys()].filter((path) => !path.includes("zh-CN"));
  const inChapters = CHAPTERS.flatMap((chapter) => chapter.pages);
  expect(inChapters.toSorted()).toEqual([...book, "CHANGELOG.md"].toSorted());
});

test("the page of the configuration has every environment variable of the source, and no other", () => {
  const read = globSync(["core/**/*.ts", "functions/**/*.ts", "infra/**/*.ts"], {
    cwd: root,
    exclude: ["infra/servers/**", "infra/clock/**"],
  });
  const named = (text: string) => new Set(text.match(/(?<!\w)LOCKSTEP_[A-Z_]+[A-Z](?!_?\w)/g));
  const sources = read.map((path) => readFileSync(join(root, path), "utf8"));
  const arns = ["LOCKSTEP_STORE_ARN", "LOCKSTEP_LOCKS_ARN", "LOCKSTEP_TOKEN_ARN"];
  const variables = named([...sources, ...arns].join("\n"));
  expect(variables.size).toBeGreaterThan(10);
  expect([...named(pageAt("docs/configuration.md"))].toSorted()).toEqual([...variables].toSorted());
});

test("the page of the configuration has the URL and the options of every store", () => {
  const page = pageAt("docs/configuration.md");
  const code = readFileSync(join(root, "infra/open.ts"), "utf8");
  const schemes = [...code.matchAll(/schemes: \[(.*?)\]/g)].flatMap(([, list = ""]) =>
    [...list.matchAll(/"(.+?)"/g)].map(([, scheme = ""]) => scheme),
  );
  expect(schemes.length).toBeGreaterThan(15);
  // Another name of postgres:, which docs/stores/postgres.md tells.
  const missing = schemes.filter((scheme) => scheme !== "postgresql");
  expect(missing.filter((scheme) => !page.includes(`\`${scheme}:`))).toEqual([]);
  const options = [...code.matchAll(/options\.get\("([\w-]+)"\)/g)].map(([, name = ""]) => name);
  expect(options.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});

/** Where the sources of a store name its kinds of keys, and how the page writes them. */
const KEYS: readonly (readonly [string, string, RegExp, (kind: string) => RegExp])[] = [
  [
    "SQL databases",
    "core/stores/{sqlite/migrations,sql/migrate}.ts",
    /CREATE TABLE IF NOT EXISTS (\w+)/g,
    (table) => new RegExp(`^\\| \`${table}\``, "m"),
  ],
  [
    "Redis",
    "core/stores/redis/**/*.ts",
    /(?:keyOf|ownKey|patternOf)\([\w.#]+, "(\w+)"|(?<=keys\.of\(names, [^)]*)"(\w+)"/g,
    (kind) => new RegExp(`\`{PREFIX}${kind}[:\`]`),
  ],
  [
    "etcd",
    "core/stores/etcd/**/*.ts",
    /\b(?:own|ownKey)\((?:[\w.]+, )?"(\w+)"/g,
    (kind) => new RegExp(`\`PREFIX/%lockstep/${kind}[/\`]`),
  ],
  [
    "DynamoDB",
    "core/stores/dynamodb/{locks,inventory,journal}/*.ts",
    /(?:pk: |return |(?:LOCK|STOCK|LIMITS) = )[`"](\w+)(?:\/["$]|";|", sk)/g,
    (kind) => new RegExp(`^\\|.*\`${kind}[/\`].*\\|.*\\|.*\\|$`, "m"),
  ],
];

test.each(KEYS)("the page of the configuration has every key of %s", (_, paths, named, shown) => {
  const source = globSync(paths, { cwd: root })
    .map((path) => readFileSync(join(root, path), "utf8"))
    .join("\n");
  const kinds = new Set(
    [...source.matchAll(named)].map(([, first, second]) => first ?? second ?? ""),
  );
  expect(kinds.size).toBeGreaterThan(4);
  const page = pageAt("docs/configuration.md");
  expect([...kinds].filter((kind) => !shown(kind).test(page))).toEqual([]);
});

const DBOS_SERVICES = ["DBOS, a step", "DBOS, a transaction"];
const OUR_SERVICES = ["Lockstep, a step with its fence", "Lockstep, step.tx"];

describe("the numbers of a measurement", () => {
  const kept = (name: string) => JSON.parse(readFileSync(join(root, "docs", name), "utf8"));

  test.each(["docs/choosing.md", "docs/zh-CN/choosing.md"])(
    "beside DBOS are right on %s",
    (path) => {
      const { suites }: Benchmarks = kept("benchmarks.json");
      const report = suites.find(({ suite }) => suite === "postgres") ?? expect.fail();
      const lines = pageAt(path).split("\n");
      const rows = lines
        .slice(lines.findIndex((line) => line.includes("DBOS = 1")))
        .filter((line) => /^\|.*\d\.\d\d/.test(line));
      for (const [i, kind] of KINDS.entries()) {
        const measured = RUNS.flatMap((runs) => {
          const { value, interval } = ratioOf(report, kind, runs);
          return [value, ...interval];
        });
        expect(rows[i]?.match(/\d\.\d+/g), rows[i]).toEqual(measured);
      }
      const { runs }: PeersRuns = kept("peers.json");
      const services = servicesOf(runs.at(-1) ?? expect.fail());
      const twice = [...DBOS_SERVICES, ...OUR_SERVICES].map((name) => {
        const { outcomes } = services.find((one) => one.name === name) ?? expect.fail(name);
        return `${outcomes.filter(({ losses }) => (losses.twice ?? 0) > 0).length}`;
      });
      const trials = lines.find((line) => line.includes("proof.md#the-same-operation")) ?? "";
      expect(trials.match(/\d(?= of 7|\/7)/g)).toEqual(twice);
    },
  );

  test.each(["README.md", "README.zh-CN.md"])("of the incident are right on %s", (path) => {
    const sales: readonly Sale[] = kept("incident.json").incident.strategies;
    const shown = [
      "as-in-the-incident",
      "process-lock",
      "owner-checked",
      "renewed",
      "fence-claimed",
      "lockstep",
    ].map((name) => sales.find((sale) => sale.name === name) ?? expect.fail(name));
    const rows = shown.map(({ sold, oversold, lost, duplicates, refused }) =>
      [sold, oversold, lost, duplicates, refused].map(String),
    );
    const table = [
      ...pageAt(path).matchAll(/^\|.*\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$/gm),
    ];
    expect(table.map(([, ...cells]) => cells)).toEqual(rows);
  });

  test("of the incident's own cause are right", () => {
    const parts: readonly { readonly strategies: readonly Sale[] }[] =
      kept("incident.json").story.parts;
    const [first] = parts;
    for (const { name } of first?.strategies ?? expect.fail()) {
      const sold = parts.map((part) => part.strategies.find((one) => one.name === name)?.sold);
      expect(pageAt("docs/incident.md")).toContain(`| \`${name}\` | ${sold.join(" | ")} |`);
    }
  });
});

/** What one strategy did in a sale, as `lockstep oversell --json` tells. */
interface Sale {
  readonly name: string;
  readonly sold: number;
  readonly oversold: number;
  readonly lost: number;
  readonly duplicates: number;
  readonly refused: number;
}

test("the architecture names only files and folders that exist, at most three for a question", () => {
  const page = pageAt("docs/architecture.md");
  const isPath = (text: string) => text.includes("/") || /\.\w+$/.test(text);
  const pathsIn = (text: string) =>
    [...text.matchAll(/`([^`]+)`/g)].map(([, path = ""]) => path).filter(isPath);
  const rows = page.split("\n").filter((line) => line.startsWith("| "));
  expect(rows.length).toBeGreaterThan(30);
  for (const path of rows.flatMap(pathsIn).filter((path) => !path.startsWith("/"))) {
    expect(existsSync(join(root, path)), path).toBe(true);
  }
  for (const row of rows) expect(pathsIn(row).length, row).toBeLessThanOrEqual(3);
});

test("the README has at most 200 lines", () => {
  expect(pageAt("README.md").split("\n").length).toBeLessThanOrEqual(201);
});

test("the runbook has a section for every alert", () => {
  const rules = readFileSync(join(root, "infra/monitoring/alerts.yml"), "utf8");
  const alerts = [...rules.matchAll(/- alert: (\w+)/g)].map(([, name]) => name);
  expect(alerts.length).toBeGreaterThan(5);
  const rows = pageAt("docs/operations.md").matchAll(/^\| `(Lockstep\w+)` \| \[/gm);
  expect([...rows].map(([, name]) => name)).toEqual(alerts);
});

describe("the page of errors", () => {
  const page = pageAt("docs/errors.md");
  const documented = new Set(
    page
      .split("\n")
      .filter((line) => line.startsWith("| `"))
      .flatMap((row) => [...(row.split("|")[1] ?? "").matchAll(/`([A-Z_]+)`/g)])
      .map(([, code = ""]) => code),
  );
  const sources = globSync(["core/**/*.ts", "functions/**/*.ts"], {
    cwd: root,
    // Its code is Node's.
    exclude: ["core/stores/peer.ts"],
  });
  const thrown = new Set(
    sources.flatMap((path) => codesIn(readFileSync(join(root, path), "utf8"))),
  );

  test("has every code of the source, and no other", () => {
    expect(thrown.size).toBeGreaterThan(70);
    expect([...documented].filter((code) => !thrown.has(code))).toEqual([]);
    expect([...thrown].filter((code) => !documented.has(code))).toEqual([]);
  });

  test("has a cause and a cure for every code", () => {
    const rows = page.split("\n").filter((line) => line.startsWith("| `"));
    for (const row of rows) {
      const cells = row.split("|").slice(2, 4);
      for (const cell of cells) expect(cell.trim().length, row).toBeGreaterThan(10);
    }
  });
});

/** The codes of the errors that a module makes. */
function codesIn(source: string): readonly string[] {
  const patterns = [
    /(?:new (?:TerminalError|InventoryError)|super)\(\s*"([A-Z_]+)"/g,
    /new Problem\(\s*\w+,\s*"([A-Z_]+)"/g,
    /\bcode(?: =|:) "([A-Z_]+)"/g,
    /\bcode (?:\?\?|= \w+ === \d+ \?) "([A-Z_]+)"/g,
    /^const REFUSALS = \{\n.*\["([A-Z_]+)".*\n.*\["([A-Z_]+)"/gm,
  ];
  return patterns.flatMap((pattern) =>
    [...source.matchAll(pattern)].flatMap(([, ...codes]) => codes),
  );
}

describe.each(["README", "docs/start", "docs/choosing", "docs/concepts", "docs/operations"])(
  "the Chinese translation of %s",
  (path) => {
    const translated = path === "README" ? `${path}.zh-CN` : path.replace("docs/", "docs/zh-CN/");
    const english = pageAt(`${path}.md`);
    const chinese = pageAt(`${translated}.md`);

    test("has the same programs and commands", () => {
      const code = (page: string) => blocksOf(page).map((block) => block.replaceAll(/ +# .*/g, ""));
      expect(code(chinese)).toEqual(code(english));
    });

    test("has the same sections, and as many rows in its tables", () => {
      const shape = (page: string) => page.match(/^(?:#+ |\| |!\[)/gm)?.map((mark) => mark.trim());
      expect(shape(chinese)).toEqual(shape(english));
    });

    test("has the same marks, numbers and codes in its tables", () => {
      const cells = (page: string) =>
        page
          .split("\n")
          .filter((line) => line.startsWith("|"))
          .map((line) => line.split("|").map((cell) => cell.trim()));
      const translations = cells(chinese);
      for (const [i, row] of cells(english).entries()) {
        for (const [j, cell] of row.entries()) {
          if (/^(?:●|[\d +¹²³⁴]*|`[\w.]+`)$/.test(cell)) {
            expect(translations[i]?.[j], row.join("|")).toBe(cell);
          }
        }
      }
    });

    test("links to the same pages", () => {
      const targets = (page: string, from: string) =>
        new Set(
          linksOf(page)
            .map((link) => link.split("#")[0] || from)
            .map((file) => (file === from ? file : normalize(join(dirname(from), file))))
            .map((target) => target.replace("zh-CN/", "").replace(".zh-CN", "")),
        );
      expect(targets(chinese, `${translated}.md`)).toEqual(targets(english, `${path}.md`));
    });
  },
);
