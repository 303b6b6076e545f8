import { readFile } from "node:fs/promises";
import { drawIncident, LABELS_WIDTH } from "./draw-incident.ts";
import { type Incident, incidentOf } from "./incident.ts";
import type { Frame } from "./narrator.ts";
import type { Observations } from "./observations.ts";
import { figuresOf, isBroken, isWrong, type StrategyReport, verdict } from "./report.ts";
import type { Strategy } from "./strategy.ts";

export interface ReportSetting {
  /** The command line that made the report, without credentials. */
  readonly command: string;

  /** The part of the story that the report shows. */
  readonly part?: string;

  /** Names and values that describe the replay: store, seed, versions. */
  readonly facts: Readonly<Record<string, string | number>>;
}

/** The most orders of a report, over all strategies: so many that the file stays below 1 MB. */
export const MAX_REPORT_ORDERS = 960;

/** The width of a drawing in pixels, and the pixels of a lock's ttl in between. */
const MIN_WIDTH = 900;
const MAX_WIDTH = 8_000;
const TTL_WIDTH = 110;

/** Returns the pixels per millisecond. */
function scaleOf({ millis }: Incident, ttlMillis: number): number {
  return Math.min(Math.max(TTL_WIDTH / ttlMillis, MIN_WIDTH / millis), MAX_WIDTH / millis);
}

/** Renders a report as one HTML file that loads nothing. */
export async function renderReport(
  observations: readonly Observations[],
  { command, part, facts }: ReportSetting,
): Promise<string> {
  const [style, drawing, script] = await Promise.all(
    ["page.css", "drawing.css", "page.js"].map((name) =>
      readFile(new URL(`./report-page/${name}`, import.meta.url), "utf8"),
    ),
  );
  const incidents = observations.map(incidentOf);
  const replays = incidents.map((incident, i) => ({
    ...incident,
    scale: scaleOf(incident, observations[i]?.ttlMillis ?? 1),
  }));
  const data = replays.map(({ report, stock, frames, scale, beliefs, messages }) => ({
    headline: headline(report, stock),
    why: `${report.name} ${report.why}.`,
    tone: toneOf(report),
    scale,
    start: startOf(frames, beliefs),
    frames: frames.map((frame) => toShownFrame(frame, messages)),
  }));
  const [first] = data;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>An oversell incident, replayed</title>
<style>
${style}${drawing}</style>
<noscript><style>fieldset, .controls, #sentence, h2:has(+ #moments) { display: none }</style></noscript>
</head>
<body>
<main>
<h1 id="headline" class="${first?.tone}">${first?.headline}</h1>
<p id="why">${first?.why}</p>
${part === undefined ? "" : `<p class="faint">This page shows ${part}.</p>`}
<noscript><p>Without JavaScript, this page draws the first strategy alone, and does not tell its moments.</p></noscript>
<fieldset>
<legend>The same orders, the same faults. Which strategy sells?</legend>
<div class="switch">
${observations.map(({ strategy, stock }, i) => choice(strategy, incidents[i]?.report.sold ?? 0, stock, i)).join("\n")}
</div>
<p>With the fence, the stock refuses a holder older than one it has seen.</p>
</fieldset>
<figure>
<svg class="definitions" aria-hidden="true">${DEFINITIONS}</svg>
${replays.map((replay, i) => section(replay, i)).join("\n")}
<p class="frame" id="sentence" aria-live="polite"></p>
<div class="controls">
<button type="button" id="before" aria-label="the decisive moment before">‹</button>
<button type="button" id="play">Play</button>
<button type="button" id="next" aria-label="the next decisive moment">›</button>
<input type="range" id="scrubber" min="0" max="0" step="1" aria-label="moment of the replay">
</div>
<ul class="key-of-signs">
${SIGNS.map(([sign, text]) => `<li><svg width="34" height="16" aria-hidden="true">${sign}</svg>${text}</li>`).join("\n")}
</ul>
</figure>
<h2>What to look for</h2>
<p>A lock that expires does not tell its holder. The holder is slow or frozen, goes on, and believes that it is alone: then two processes
sell the same unit. No lock can prevent that. The stock can: every lock carries a fence, a number that rises with each holder, and the stock
refuses a fence that is lower than the highest one it has seen. ${advice(incidents, observations)}</p>
<h2>The decisive moments</h2>
<ol id="moments"></ol>
<h2>All figures</h2>
${figures(incidents)}
<p class="faint">Safe: no unit is oversold, lost or sold twice, and no buyer waits for ever, at any timing and with any fault.</p>
<h2>How it was made</h2>
<p><code>${escapeHtml(command)}</code></p>
<p class="faint">${Object.entries(facts)
    .map(([name, value]) => `${escapeHtml(name)} ${escapeHtml(String(value))}`)
    .join(" · ")}</p>
</main>
<script type="application/json" id="data">${JSON.stringify(data).replaceAll("<", "\\u003c")}</script>
<script>
${script}</script>
</body>
</html>
`;
}

/** Names the strategies of this report that show what the paragraph says. */
function advice(incidents: readonly Incident[], observations: readonly Observations[]): string {
  const fenced = observations.filter(
    ({ strategy }, i) => strategy.fence !== "none" && (incidents[i]?.report.refused ?? 0) > 0,
  );
  const inProcess = observations.filter(({ strategy }) => strategy.lock === "in-process");
  const names = (of: readonly Observations[]) =>
    of.map(({ strategy }) => `<b>${strategy.name}</b>`).join(" or ");
  const bounces = `Choose ${names(fenced)} above: two believe that they hold the lock, and the late write bounces off the stock.`;
  const needsNone = `${names(inProcess)} needs no slow process: its lock is in the memory of each process, and holds no other process back.`;
  return [
    ...(fenced.length > 0 ? [bounces] : []),
    ...(inProcess.length > 0 ? [needsNone] : []),
  ].join("\n");
}

/** Renders the beginning of each replay as an SVG document, up to the late write of the first holder that is too late. */
export async function renderPicture(observations: readonly Observations[]): Promise<string> {
  const [page, drawing] = await Promise.all(
    ["page.css", "drawing.css"].map((name) =>
      readFile(new URL(`./report-page/${name}`, import.meta.url), "utf8"),
    ),
  );
  const colours = (page ?? "").slice(0, page?.indexOf("body {"));
  const incidents = observations.map(incidentOf);
  // All panels show the same time.
  const ttl = Math.max(...observations.map(({ ttlMillis }) => ttlMillis));
  const end = Math.max(...incidents.map((incident) => endOfFirstOverlap(incident) ?? 0), ttl);
  const to = end + 1.5 * ttl;
  const from = Math.max(0, to - PICTURE_TTLS * ttl);
  const scale = (PICTURE_WIDTH - LABELS_WIDTH - MARGIN) / (to - from);
  let top = 0;
  const parts = incidents.map((incident, i) => {
    const { report, stock } = incident;
    const drawn = drawIncident(incident, { from, to, scale });
    const kind = kindOf(observations[i]?.strategy);
    const title = `${report.name}${kind}: ${headline(report, stock)}`;
    const part = `<g transform="translate(0 ${top})"><text class="title ${toneOf(report)}" x="10" y="24">${title}</text><g transform="translate(0 34)">${drawn.labels}</g><svg x="${LABELS_WIDTH}" y="34" width="${drawn.width}" height="${drawn.height}">${drawn.lanes}</svg></g>`;
    top += drawn.height + 50;
    return part;
  });
  const key = SIGNS.map(([sign, text], i) => {
    const x = 10 + (i % SIGNS_IN_ROW) * ((PICTURE_WIDTH - MARGIN) / SIGNS_IN_ROW);
    const y = top + Math.floor(i / SIGNS_IN_ROW) * 22;
    return `<g transform="translate(${x} ${y})">${sign}<text x="42" y="12">${text}</text></g>`;
  });
  const height = top + Math.ceil(SIGNS.length / SIGNS_IN_ROW) * 22 + MARGIN;
  const titles =
    ".ground { fill: var(--ground); } svg .title { font-size: 17px; font-weight: bold; } svg .title.wrong { fill: var(--bad); } svg .title.safe { fill: var(--good); }";
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${PICTURE_WIDTH} ${height}" width="${PICTURE_WIDTH}" height="${height}">
<style>${withFallbacks(`${colours}${drawing}${titles}`)}</style>
${DEFINITIONS}
<rect class="ground" width="100%" height="100%"/>
${parts.join("\n")}
${key.join("\n")}
</svg>
`;
}

/** The width of a picture and its margin in pixels, the most time that it shows in ttls, and the signs in a row of its key. */
const PICTURE_WIDTH = 1_000;
const MARGIN = 10;
const PICTURE_TTLS = 12;
const SIGNS_IN_ROW = 3;

/** Returns when the first holder that had company notices it, or has done its harm. */
function endOfFirstOverlap({ beliefs }: Incident): number | undefined {
  const second = beliefs.find(({ overlaps }) => overlaps);
  return second && beliefs.find(({ to }) => to > second.from)?.to;
}

/** Gives each colour a fallback in its light variant, for renderers without variables. */
function withFallbacks(css: string): string {
  const light = new Map(
    css
      .slice(0, css.indexOf("@media"))
      .matchAll(/(--[a-z]+): (#[0-9a-f]+);/g)
      .map(([, name, value]) => [name, value]),
  );
  return css.replaceAll(
    /(fill|stroke): var\((--[a-z]+)\);/g,
    (declaration, property, name) => `${property}: ${light.get(name)}; ${declaration}`,
  );
}

/** Returns what the page needs of a frame, without names, for there are thousands: its time, its sentence, the number of its message, and 1 if it is decisive. */
function toShownFrame({ at, worker, text, isKey }: Frame, messages: Incident["messages"]) {
  const message = messages.findIndex((one) => one.to === at && one.worker === worker);
  const shown = [Math.round(at * 10) / 10, text, message];
  return isKey ? [...shown, 1] : shown;
}

/** Returns the index of the frame with which the replay begins: the first one with two holders, or else the first decisive one. */
function startOf(frames: Incident["frames"], beliefs: Incident["beliefs"]): number {
  const second = beliefs.find(({ overlaps }) => overlaps)?.from;
  const index = frames.findIndex(({ at, isKey }) => isKey && at >= (second ?? 0));
  return Math.max(0, index);
}

function headline({ sold, duplicates }: StrategyReport, stock: number): string {
  const twice = duplicates > 0 ? `, ${duplicates} of them to an order that had one` : "";
  return `${stock} in stock, ${sold} sold${sold > stock ? "" : twice}`;
}

function toneOf(report: StrategyReport): "wrong" | "lucky" | "safe" {
  if (isWrong(report)) return "wrong";
  return report.claimsSafe ? "safe" : "lucky";
}

function choice(strategy: Strategy, sold: number, stock: number, i: number): string {
  const { name } = strategy;
  const checked = i === 0 ? " checked" : "";
  return `<label><input type="radio" name="strategy" value="${name}"${checked}>${name}${kindOf(strategy)}: sold ${sold} of ${stock}</label>`;
}

/** Says whether a strategy has a lock and a fence. */
function kindOf(strategy: Strategy | undefined): string {
  if (!strategy || strategy.lock === "none") return " (no lock)";
  if (strategy.lock === "in-process") return " (a lock in each process)";
  return strategy.fence === "none" ? " (lock only)" : " (lock + fence)";
}

const DEFINITIONS = `<defs>
<pattern id="hatched" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="harmful" d="M0 0H8V8H0z"/><path class="hatch" d="M2 0V8"/></pattern>
<pattern id="harm" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch-harm" d="M2 0V8"/></pattern>
<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker>
<marker id="head-faint" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path class="head-faint" d="M0 0L8 4L0 8z"/></marker>
<marker id="head-bounced" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path class="head-bounced" d="M0 0L8 4L0 8z"/></marker>
</defs>`;

function section(replay: Incident & { readonly scale: number }, i: number): string {
  const { millis, scale, report, stock } = replay;
  const { labels, lanes, width, height } = drawIncident(replay, {
    from: 0,
    to: millis * 1.05,
    scale,
  });
  const name = `${report.name}: ${headline(report, stock)}. The sentences below tell what happens.`;
  return `<div class="replay" data-strategy="${report.name}"${i > 0 ? " hidden" : ""}>
<svg class="labels" width="${LABELS_WIDTH}" height="${height}" aria-hidden="true"><g id="labels-${i}">${labels}</g></svg>
<div class="scroll" tabindex="0" role="group" aria-label="the sale over time"><svg width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${name}"><g id="lanes-${i}">${lanes}</g><line class="cursor" x1="0" x2="0" y1="0" y2="${height}"/><text class="told-text"></text></svg></div>
${strips(i, width, height)}
</div>`;
}

/** The width of a strip in pixels: on paper its texts are two thirds as high as on a screen, and two strips fit on a page. */
const STRIP_WIDTH = 1_300;

/** Draws the lanes once more for paper, which does not scroll: in strips, one below the other. */
function strips(i: number, width: number, height: number): string {
  const stripWidth = Math.min(width, STRIP_WIDTH);
  const starts = Array.from({ length: Math.ceil(width / stripWidth) }, (_, n) => n * stripWidth);
  return starts
    .map(
      (start) =>
        `<svg class="strip" viewBox="0 0 ${LABELS_WIDTH + stripWidth} ${height}" aria-hidden="true"><use href="#labels-${i}"/><svg x="${LABELS_WIDTH}" width="${stripWidth}" height="${height}" viewBox="${start} 0 ${stripWidth} ${height}"><use href="#lanes-${i}"/></svg></svg>`,
    )
    .join("\n");
}

/** The signs of the drawing, with their meaning. */
const SIGNS: readonly (readonly [string, string])[] = [
  ['<rect class="belief" width="34" height="14"/>', "the process believes that it holds the lock"],
  ['<rect class="truth" y="5" width="34" height="6"/>', "it holds the lock, says the store"],
  [
    '<rect class="belief second" width="34" height="14"/><rect class="both" width="34" height="14"/>',
    "two believe it at once",
  ],
  ['<rect class="slow" y="1" width="34" height="12"/>', "waits for a slow service, or is frozen"],
  ['<path class="message asks" d="M17 16V1"/>', "asks for the lock, or releases it"],
  ['<path class="grant" d="M17 0V16"/>', "the store grants the lock"],
  ['<path class="message reads" d="M12 0L22 16"/>', "a question to the stock"],
  ['<path class="message claimed" d="M12 0L22 16"/>', "a holder shows its fence to the stock"],
  [
    '<path class="message sold" d="M6 0L16 14"/><circle class="sale" cx="28" cy="8" r="3.5"/>',
    "a sale",
  ],
  ['<circle class="bad-mark" cx="17" cy="8" r="5"/>', "a sale of a unit that does not exist"],
  ['<path class="refusal" d="M12 3l10 10m0 -10l-10 10"/>', "a late write, refused"],
  ['<text class="fence" x="17" y="12">41</text>', "the fence that the stock sees"],
  ['<path class="left" d="M0 8H34"/>', "units that are really left"],
  ['<path class="recorded" d="M0 8H34"/>', "units left, says the stock’s record"],
];

function figures(incidents: readonly Incident[]): string {
  const head = [
    ...["strategy", "safe?", "sold", "oversold", "lost", "twice", "lowest stock", "overlaps"],
    ...["refused", "stuck", "p50 ms", "p99 ms", "orders/s"],
  ];
  const rows = incidents.map(({ report }) => {
    const [name = "", ...numbers] = figuresOf(report);
    return [name, verdict(report, isBroken(report)), ...numbers];
  });
  const cells = (row: readonly (string | number)[], tag: string) =>
    `<tr>${row.map((cell) => `<${tag}>${cell}</${tag}>`).join("")}</tr>`;
  return `<table tabindex="0"><thead>${cells(head, "th")}</thead><tbody>${rows.map((row) => cells(row, "td")).join("\n")}</tbody></table>`;
}

function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
