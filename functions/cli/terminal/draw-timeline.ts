import { styleText } from "node:util";
import type { Millis } from "../../../core/lock/time.ts";
import { escapeControls } from "../../display/escape-controls.ts";
import { formatDuration } from "../../display/format-duration.ts";
import type { EntryStyle, TimelineEntry } from "../../display/timeline.ts";

/** Colours text if standard output is a terminal. */
type Colour = (tone: EntryStyle | "faint" | "strong", text: string) => string;

const COLOURS: Readonly<Record<EntryStyle | "faint" | "strong", Parameters<typeof styleText>[0]>> =
  {
    done: "cyan",
    retried: "yellow",
    failed: "red",
    undone: "magenta",
    begun: "cyan",
    waiting: "blue",
    noted: "gray",
    faint: "gray",
    strong: "bold",
  };

export const colour: Colour = (tone, text) =>
  styleText(COLOURS[tone], text, { stream: process.stdout });

/** The bars of the kinds of entries. */
const BARS: Readonly<Record<EntryStyle, string>> = {
  done: "█",
  retried: "▓",
  failed: "▓",
  undone: "▒",
  begun: "━",
  waiting: "┄",
  noted: "·",
};

/** The bar of the wait for locks. */
const WAITING_BAR = "░";

const COLUMNS = ["", "after", "step", "outcome", "took", "waited", "fence"] as const;

/** The widths of the columns. The time axis gets the rest of the line. */
const WIDTHS: readonly number[] = [1, 9, 21, 10, 9, 9, 9];
const COLUMNS_WIDTH = WIDTHS.reduce((sum, width) => sum + width + 1, 0);
const MIN_AXIS_WIDTH = 12;

/** Draws the entries as a table with a time axis from 0 to `end`, `width` columns wide. */
export function drawTimeline(
  entries: readonly TimelineEntry[],
  end: Millis,
  width: number,
): string {
  const axis = Math.max(width - COLUMNS_WIDTH, MIN_AXIS_WIDTH);
  const head = row(COLUMNS.map(String), scale(end, axis));
  return [colour("faint", head), ...entries.flatMap((entry) => draw(entry, end, axis, width))].join(
    "\n",
  );
}

function draw(entry: TimelineEntry, end: Millis, axis: number, width: number): readonly string[] {
  const { isResumed, at, step, label, took, waited, fence, error, style } = entry;
  const cells = [
    isResumed ? "↻" : "",
    formatDuration(at),
    step,
    label,
    took === undefined ? "" : formatDuration(took),
    waited === undefined ? "" : formatDuration(waited),
    fence === undefined ? "" : shortFence(fence),
  ];
  const main = row(cells, bar(entry, end, axis), style);
  return error === undefined ? [main] : [main, ...errorLines(error, width)];
}

/** The columns of numbers. */
const ALIGNED_RIGHT: readonly string[] = ["after", "took", "waited", "fence"];

function row(cells: readonly string[], picture: string, tone?: EntryStyle): string {
  const padded = cells.map((cell, i) => {
    const width = WIDTHS[i] ?? 0;
    const text = truncate(escapeControls(cell), width);
    const full = ALIGNED_RIGHT.includes(COLUMNS[i] ?? "")
      ? text.padStart(width)
      : text.padEnd(width);
    return tone && COLUMNS[i] === "outcome" ? colour(tone, full) : full;
  });
  return `${padded.join(" ")} ${tone ? colour(tone, picture) : picture}`.trimEnd();
}

function bar({ waitedFrom, from, at, style }: TimelineEntry, end: Millis, axis: number): string {
  const cell = (time: Millis) => Math.min(axis - 1, Math.floor((time / Math.max(end, 1)) * axis));
  const [first, start, last] = [cell(waitedFrom), cell(from), cell(at)];
  const waiting = from > waitedFrom ? WAITING_BAR.repeat(start - first) : "";
  const isMoment = from === at && waitedFrom === at;
  const work = isMoment ? "╵" : BARS[style].repeat(last - start + 1);
  return `${" ".repeat(first)}${waiting}${work}`;
}

/** Draws the scale of the time axis: "├ 0 ─────── 2.31 s ┤". */
function scale(end: Millis, axis: number): string {
  const [left, right] = ["├ 0 ", ` ${formatDuration(end)} ┤`];
  return `${left}${"─".repeat(Math.max(0, axis - left.length - right.length))}${right}`;
}

/** How many lines of an error are shown. The JSON has the whole text. */
const MAX_ERROR_LINES = 3;

function errorLines(error: string, width: number): readonly string[] {
  const indent = " ".repeat(12);
  const space = width - indent.length;
  const text = escapeControls(error);
  const count = Math.min(MAX_ERROR_LINES, Math.ceil(text.length / space));
  return Array.from({ length: count }, (_, i) => {
    const rest = text.slice(i * space);
    const part = i === count - 1 ? truncate(rest, space) : rest.slice(0, space);
    return indent + colour("failed", part);
  });
}

/** Shortens fences for display: "0000000000.00000000000000000017" becomes "0.17". */
export function shortFence(fences: string): string {
  const [first = "", ...rest] = fences.split(" ");
  const [generation, token] = first.split(".").map((part) => part.replace(/^0+(?=\d)/, ""));
  return `${generation}.${token}${rest.length > 0 ? ` +${rest.length}` : ""}`;
}

/** Cuts the text off at `width` characters. */
export function truncate(text: string, width: number): string {
  const characters = [...text];
  return characters.length > width ? `${characters.slice(0, width - 1).join("")}…` : text;
}
