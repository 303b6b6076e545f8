import { stripVTControlCharacters } from "node:util";
import Table from "cli-table3";
import type { OversellReport } from "../../oversell/oversell.ts";
import {
  figuresOf,
  isBroken,
  isWrong,
  type StrategyReport,
  verdict,
} from "../../oversell/report.ts";
import type { StoryReport } from "../../oversell/story.ts";
import { colour } from "./draw-timeline.ts";
import { table } from "./table.ts";

/** Draws the report of a replay as one sentence per strategy and a conclusion, `width` columns wide. */
export function drawReplay(report: OversellReport, width: number): string {
  const { strategies } = report;
  return [
    ...settingOf(report),
    "",
    columns(
      strategies.map((strategy) => [markOf(strategy), strategy.name, strategy.why]),
      width,
    ),
    "",
    columns(LEGEND, width),
    "",
    columns([[conclude(strategies)]], width),
    "",
    colour("faint", "All figures: --wide or --json. What each strategy does: docs/incident.md"),
  ].join("\n");
}

/** Draws the story as a table with a column for each part, and what each part adds, `width` columns wide. */
export function drawStory(report: StoryReport, width: number): string {
  const { parts } = report;
  const names = parts[0]?.strategies.map(({ name }) => name) ?? [];
  const cell = (one: StrategyReport) => {
    const twice = one.duplicates > 0 ? `, ${one.duplicates} twice` : "";
    const stuck = one.stuck > 0 ? ", stuck" : "";
    return `${markOf(one)} ${one.sold}${twice}${stuck}`;
  };
  const rows = names.map((name, i) => [
    name,
    ...parts.map(({ strategies }) => (strategies[i] ? cell(strategies[i]) : "")),
  ]);
  const firsts = parts.map(({ adds, firstWrong }) => [
    adds,
    firstWrong.length > 0 ? `goes wrong now: ${firstWrong.join(", ")}` : "nothing else goes wrong",
  ]);
  return [
    ...settingOf(report),
    "A service is overloaded, under a lock that expires. Each column adds a fault.",
    "",
    columns([["units sold", ...parts.map(({ adds }) => adds)], ...rows], width),
    "",
    columns(firsts, width),
    "",
    columns(LEGEND, width),
  ].join("\n");
}

function settingOf(report: Omit<OversellReport, "strategies">): readonly string[] {
  const { stock, buyers, workers, store, locks } = report;
  return [
    `${stock} units, ${buyers} buyers, ${workers} processes, on ${store}`,
    ...(locks === undefined ? [] : [`locks in ${locks}`]),
  ];
}

/** Draws all figures of a replay as a table. */
export function drawFigures({ strategies }: OversellReport): string {
  const head = [
    "strategy",
    "sold",
    "oversold",
    "lost",
    "duplicates",
    "lowest stock",
    "overlaps",
    "refused",
    "stuck",
    "p50 ms",
    "p99 ms",
    "orders/s",
    "safe?",
  ];
  const rows = strategies.map((report) => [
    ...figuresOf(report),
    verdict(report, isBroken(report)),
  ]);
  return table(head, rows);
}

const [WRONG, LUCKY, SAFE] = [
  colour("failed", "✗"),
  colour("retried", "~"),
  colour("done", "✓"),
] as const;

const LEGEND = [
  [
    SAFE,
    "safe",
    "no unit is oversold, lost or sold twice, no buyer waits for ever, with any fault",
  ],
  [LUCKY, "lucky", "nothing went wrong this time, and nothing ensures it"],
  [
    WRONG,
    "wrong",
    "units were oversold, lost, or sold twice to one order, or buyers wait for ever",
  ],
];

function markOf(report: StrategyReport): string {
  if (isWrong(report)) return WRONG;
  return report.claimsSafe ? SAFE : LUCKY;
}

function conclude(strategies: readonly StrategyReport[]): string {
  const broken = strategies.filter(isBroken);
  if (broken.length > 0) return `BROKEN: ${namesOf(broken)} claims to be safe and is not.`;
  const oversold = strategies.filter((one) => one.oversold > 0);
  const stuck = strategies.filter((one) => one.stuck > 0);
  const safe = strategies.filter((one) => one.claimsSafe);
  return [
    oversold.length === 0
      ? "Nothing was oversold this time."
      : `Oversold: ${namesOf(oversold)}. A check before the sale does not last, under a lock either: it expires unnoticed, or other processes do not see it.`,
    ...(stuck.length > 0
      ? [`Stuck: ${namesOf(stuck)}. A lock without an expiry outlives the process that died.`]
      : []),
    ...(safe.length > 0
      ? [`Safe: ${namesOf(safe)}. The stock itself refuses what is late, and counts an order once.`]
      : []),
  ].join("\n");
}

function namesOf(strategies: readonly StrategyReport[]): string {
  return strategies.map(({ name }) => name).join(", ");
}

const NO_LINES = Object.fromEntries(
  ["top", "bottom", "left", "right", "mid"]
    .flatMap((side) => [side, `${side}-mid`, `${side}-left`, `${side}-right`])
    .concat("middle")
    .map((side) => [side, ""]),
);

/** Arranges cells in columns without lines. The last column gets the rest of the width, and wraps. */
function columns(rows: readonly (readonly string[])[], width: number): string {
  const widths = (rows[0] ?? []).map((_, i) =>
    Math.max(...rows.map((row) => stripVTControlCharacters(row[i] ?? "").length)),
  );
  const before = widths.slice(0, -1).reduce((sum, each) => sum + each + 2, 0);
  const drawn = new Table({
    chars: NO_LINES,
    style: { "padding-left": 0, "padding-right": 0, head: [], border: [] },
    colWidths: [...widths.slice(0, -1).map((each) => each + 2), width - before],
    wordWrap: true,
  });
  drawn.push(...rows.map((row) => [...row]));
  return drawn.toString().replace(/ +$/gm, "");
}
