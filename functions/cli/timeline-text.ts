import { styleText } from "node:util";
import type { Millis } from "../../core/lock/time.ts";
import { spanText } from "./spans.ts";
import type { Line, Tone } from "./timeline.ts";

/** Colours text, on a terminal alone. */
type Paint = (tone: Tone | "faint" | "strong", text: string) => string;

const COLOURS: Readonly<Record<Tone | "faint" | "strong", Parameters<typeof styleText>[0]>> = {
  done: "cyan",
  retried: "yellow",
  failed: "red",
  undone: "magenta",
  waiting: "blue",
  noted: "gray",
  faint: "gray",
  strong: "bold",
};

export const paint: Paint = (tone, text) =>
  styleText(COLOURS[tone], text, { stream: process.stdout });

/** How the work of each kind looks without colours. */
const BARS: Readonly<Record<Tone, string>> = {
  done: "█",
  retried: "▓",
  failed: "▓",
  undone: "▒",
  waiting: "┄",
  noted: "·",
};

/** While it waited for its locks. */
const WAITING_BAR = "░";

const COLUMNS = ["", "after", "step", "what", "took", "waited", "fence"] as const;

/** Widths of the columns; the time axis has what is left. */
const WIDTHS: readonly number[] = [1, 9, 21, 10, 9, 9, 9];
const TAKEN = WIDTHS.reduce((sum, width) => sum + width + 1, 0);
const NARROWEST_AXIS = 12;

/** The lines as a table with a time axis from 0 to `end`, `width` columns wide. */
export function drawTimeline(lines: readonly Line[], end: Millis, width: number): string {
  const axis = Math.max(width - TAKEN, NARROWEST_AXIS);
  const head = row(COLUMNS.map(String), scale(end, axis));
  return [paint("faint", head), ...lines.flatMap((line) => draw(line, end, axis, width))].join(
    "\n",
  );
}

function draw(line: Line, end: Millis, axis: number, width: number): readonly string[] {
  const { isTakenUp, at, step, what, took, waited, fence, error, tone } = line;
  const cells = [
    isTakenUp ? "↻" : "",
    spanText(at),
    step,
    what,
    took === undefined ? "" : spanText(took),
    waited === undefined ? "" : spanText(waited),
    fence === undefined ? "" : shortFence(fence),
  ];
  const main = row(cells, bar(line, end, axis), tone);
  return error === undefined ? [main] : [main, ...errorLines(error, width)];
}

/** Numbers stand on the right of their columns. */
const RIGHT: readonly string[] = ["after", "took", "waited", "fence"];

function row(cells: readonly string[], picture: string, tone?: Tone): string {
  const padded = cells.map((cell, i) => {
    const width = WIDTHS[i] ?? 0;
    const text = shorten(visible(cell), width);
    const full = RIGHT.includes(COLUMNS[i] ?? "") ? text.padStart(width) : text.padEnd(width);
    return tone && COLUMNS[i] === "what" ? paint(tone, full) : full;
  });
  return `${padded.join(" ")} ${tone ? paint(tone, picture) : picture}`.trimEnd();
}

function bar({ waitedFrom, from, at, tone }: Line, end: Millis, axis: number): string {
  const cell = (time: Millis) => Math.min(axis - 1, Math.floor((time / Math.max(end, 1)) * axis));
  const [first, start, last] = [cell(waitedFrom), cell(from), cell(at)];
  const waiting = from > waitedFrom ? WAITING_BAR.repeat(start - first) : "";
  const isMoment = from === at && waitedFrom === at;
  const work = isMoment ? "╵" : BARS[tone].repeat(last - start + 1);
  return `${" ".repeat(first)}${waiting}${work}`;
}

/** "0 ms ─────── 2.31 s". */
function scale(end: Millis, axis: number): string {
  const [left, right] = ["├ 0 ", ` ${spanText(end)} ┤`];
  return `${left}${"─".repeat(Math.max(0, axis - left.length - right.length))}${right}`;
}

/** How many lines of an error are shown; all of it is in the JSON. */
const MOST_ERROR_LINES = 3;

function errorLines(error: string, width: number): readonly string[] {
  const indent = " ".repeat(12);
  const room = width - indent.length;
  const text = visible(error);
  const count = Math.min(MOST_ERROR_LINES, Math.ceil(text.length / room));
  return Array.from({ length: count }, (_, i) => {
    const rest = text.slice(i * room);
    const part = i === count - 1 ? shorten(rest, room) : rest.slice(0, room);
    return indent + paint("failed", part);
  });
}

/** "0000000000.00000000000000000017 …" as "0.17 …". */
export function shortFence(fences: string): string {
  const [first = "", ...rest] = fences.split(" ");
  const [generation, token] = first.split(".").map((part) => part.replace(/^0+(?=\d)/, ""));
  return `${generation}.${token}${rest.length > 0 ? ` +${rest.length}` : ""}`;
}

/** Control characters are shown, not obeyed. */
export function visible(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
}

export function shorten(text: string, width: number): string {
  const characters = [...text];
  return characters.length > width ? `${characters.slice(0, width - 1).join("")}…` : text;
}
