import { type Belief, type Delay, type Incident, isToLockStore, type Message } from "./incident.ts";
import { type Grant, isNewer } from "./narrator.ts";
import type { Interval } from "./trace.ts";

/** The heights of the parts of the drawing, from top to bottom. */
const AXIS = 24;
const STORE = 46;
const LANE = 36;
const RESOURCE = 44;
const CURVE = 130;
const GAP = 8;

/** The height of the bars in the lane of the lock store; the names of the holders stand below. */
const STORE_BAR = 18;

/** The distance of the marks in the lane of the stock from its top; the fences stand above them. */
const MARKS = 28;

/** The width of a letter, and of the longest text at a line. */
const LETTER = 6.6;
const TEXT = 200;

/** The width of the names of the lanes. */
export const LABELS_WIDTH = 92;

export interface DrawnIncident {
  readonly labels: string;
  readonly lanes: string;
  readonly width: number;
  readonly height: number;
}

export interface DrawOptions extends Interval {
  /** Pixels per millisecond. */
  readonly scale: number;
}

/** Draws a part of an incident: the elements of an SVG document, with the names of the lanes apart. */
export function drawIncident(incident: Incident, options: DrawOptions): DrawnIncident {
  const drawing = new Drawing(incident, options);
  return {
    labels: drawing.labels(),
    lanes: [
      drawing.ground(),
      drawing.axis(),
      drawing.store(),
      drawing.processes(),
      drawing.resource(),
      drawing.curve(),
      drawing.arrows(),
    ].join("\n"),
    width: Math.ceil((options.to - options.from) * options.scale),
    height: drawing.height,
  };
}

class Drawing {
  readonly #incident: Incident;
  readonly #options: DrawOptions;
  readonly #resourceTop: number;
  readonly #curveTop: number;
  readonly height: number;

  constructor(incident: Incident, options: DrawOptions) {
    this.#incident = incident;
    this.#options = options;
    this.#resourceTop = AXIS + STORE + GAP + incident.workers * LANE + GAP;
    this.#curveTop = this.#resourceTop + RESOURCE + GAP;
    this.height = this.#curveTop + CURVE + GAP;
  }

  labels(): string {
    const { workers, stock, curve } = this.#incident;
    const lowest = Math.min(0, ...curve.map(({ left }) => left));
    return [
      label("lock store", AXIS + STORE / 2),
      ...Array.from({ length: workers }, (_, worker) =>
        label(`process ${worker + 1}`, this.#laneTop(worker) + LANE / 2),
      ),
      label("stock", this.#resourceTop + RESOURCE / 2),
      label(`${stock} left`, this.#curveY(stock) + 5, "faint"),
      label("0", this.#curveY(0), "faint"),
      lowest < 0 ? label(`${lowest}`, this.#curveY(lowest), "bad") : "",
    ].join("\n");
  }

  /** The ground of the lanes. */
  ground(): string {
    const { workers } = this.#incident;
    return [
      this.#ground(AXIS, STORE),
      ...Array.from({ length: workers }, (_, i) => this.#ground(this.#laneTop(i), LANE - 2)),
      this.#ground(this.#resourceTop, RESOURCE, "lane wall"),
      this.#ground(this.#curveTop, CURVE),
    ].join("");
  }

  axis(): string {
    const { from, to, scale } = this.#options;
    const step =
      [100, 200, 500, 1_000, 2_000, 5_000, 10_000].find((one) => one * scale >= 80) ?? 30_000;
    const ticks: string[] = [];
    for (let at = Math.ceil(from / step) * step; at < to; at += step) {
      const x = this.#x(at);
      ticks.push(
        `<path class="tick" d="M${x} ${AXIS - 4}V${this.height}"/>`,
        x < this.#width - 6 * LETTER
          ? `<text class="faint" x="${x + 3}" y="${AXIS - 8}">${(at / 1_000).toFixed(2)} s</text>`
          : "",
      );
    }
    return ticks.join("");
  }

  /** The holders of the lock according to the store. */
  store(): string {
    const grants = this.#within(this.#incident.grants);
    const names = this.#namesOf(grants);
    const bars = grants.map((grant) => this.#box(grant, AXIS + 4, STORE_BAR));
    const lines = grants.map(
      ({ from, worker }) =>
        `M${this.#x(from)} ${AXIS + 4 + STORE_BAR}V${this.#laneTop(worker) + 6}`,
    );
    const expiries = grants.flatMap((grant) => {
      const { x, width } = this.#span(grant);
      return grant.hasExpired && width > 50
        ? `<text class="on end" x="${round(x + width - 4)}" y="${AXIS + STORE_BAR - 1}">expires</text>`
        : [];
    });
    // The names stand above the dotted lines.
    const texts = Array.from(names, ([{ from }, name]) => {
      const x = round(this.#x(from) + 2);
      return `<text class="name" x="${x}" y="${AXIS + STORE - 9}">${name}</text>`;
    });
    return [
      `<path class="truth" d="${bars.join("")}"/><path class="grant" d="${lines.join("")}"/>`,
      ...expiries,
      ...texts,
    ].join("");
  }

  /** Names as many holders as have room in the lane: first those whose lock expires, or whose fence refuses another one. */
  #namesOf(grants: readonly Grant[]): ReadonlyMap<Grant, string> {
    const names = new Map<Grant, string>();
    const row = new Row(this.#width);
    const refusals = this.#incident.messages.filter(({ type }) => type === "refused");
    const newer = new Set(refusals.map((message) => this.#newerFence(message)));
    const isKey = ({ hasExpired, token }: Grant) =>
      hasExpired || (token !== undefined && newer.has(token));
    const inOrder = [...grants.filter(isKey), ...grants.filter((grant) => !isKey(grant))];
    for (const grant of inOrder) {
      const fence = this.#fenceOf(grant);
      const process = `P${grant.worker + 1}`;
      const candidates = fence ? [`${process}, ${fence}`, fence] : [process];
      const name = candidates.find((one) => row.hasRoom(one, this.#x(grant.from)));
      if (name !== undefined) names.set(grant, name);
    }
    return names;
  }

  #fenceOf({ token }: Grant): string {
    return token === undefined ? "" : `fence ${this.#incident.shorten(token)}`;
  }

  /** The beliefs of the processes, and the truth. */
  processes(): string {
    const { beliefs, grants, delays } = this.#incident;
    const believed = this.#within(beliefs);
    const top = ({ worker }: { readonly worker: number }) => this.#laneTop(worker);
    return [
      ...believed.map((one) =>
        this.#bar(one, top(one) + 5, 18, one.overlaps ? "belief second" : "belief"),
      ),
      `<path class="truth" d="${this.#within(grants)
        .map((grant) => this.#box(grant, top(grant) + 25, 6))
        .join("")}"/>`,
      ...believed.flatMap((one) =>
        this.#shared(one).map((span) => this.#bar(span, top(one) + 5, 18, "both")),
      ),
      ...this.#within(delays).map((delay) => this.#delay(delay, top(delay))),
    ].join("");
  }

  /** The requests to the lock store and to the stock. A refused one bounces off. */
  arrows(): string {
    return this.#within(this.#incident.messages)
      .map((message) => this.#arrow(message, this.#laneTop(message.worker)))
      .join("");
  }

  /** The answers of the stock, and the fences that it saw. */
  resource(): string {
    const y = this.#resourceTop + MARKS;
    const left = new Map(this.#incident.curve.map((point) => [point.at, point.left]));
    const marks = this.#within(this.#incident.messages).map(({ type, to }) => {
      const x = this.#x(to);
      if (type === "sold") {
        const isOver = (left.get(to) ?? 0) < 0;
        return `<circle class="${isOver ? "bad-mark" : "sale"}" cx="${x}" cy="${y}" r="${isOver ? 5 : 3.5}"/>`;
      }
      if (type === "refused")
        return `<path class="refusal" d="M${x - 5} ${y - 5}l10 10m0 -10l-10 10"/>`;
      return "";
    });
    return [...marks, ...this.#fencesAtStock()].join("");
  }

  /** Names as many fences as have room in the lane of the stock: first those that were refused. */
  #fencesAtStock(): readonly string[] {
    const messages = this.#within(this.#incident.messages).filter(
      (message) => message.token !== undefined && !isToLockStore(message),
    );
    const isRefused = ({ type }: Message) => type === "refused";
    const inOrder = messages.toSorted((a, b) => Number(isRefused(b)) - Number(isRefused(a)));
    const row = new Row(this.#width);
    return inOrder.flatMap((message) => {
      const text = this.#incident.shorten(message.token ?? "");
      const x = this.#x(message.to);
      if (!row.hasRoom(text, x - (text.length * LETTER) / 2)) return [];
      const name = isRefused(message) ? "fence late" : "fence";
      return `<text class="${name}" x="${x}" y="${this.#resourceTop + 14}">${text}</text>`;
    });
  }

  /** The stock over time: as the shop has recorded it, and what is left after all sales. */
  curve(): string {
    const { curve } = this.#incident;
    const path = (valueAt: (point: Incident["curve"][number]) => number) =>
      curve
        .map((point, i) => {
          const y = this.#curveY(valueAt(point));
          return i === 0 ? `M${this.#x(this.#options.from)} ${y}` : `H${this.#x(point.at)}V${y}`;
        })
        .join("")
        .concat(`H${this.#x(this.#options.to)}`);
    const zero = this.#curveY(0);
    const below = path(({ left }) => Math.min(0, left));
    return [
      `<path class="below" d="${below}V${zero}Z"/>`,
      `<path class="zero" d="M0 ${zero}H${this.#x(this.#options.to)}"/>`,
      `<path class="recorded" d="${path(({ recorded }) => recorded)}"/>`,
      `<path class="left" d="${path(({ left }) => left)}"/>`,
      this.#recordLabel(),
    ].join("");
  }

  /** Names the dashed line where it leaves the other one. */
  #recordLabel(): string {
    const { from, to } = this.#options;
    const apart = this.#incident.curve.find(
      ({ at, recorded, left }) => at >= from && at < to && recorded !== left,
    );
    if (!apart) return "";
    const x = this.#x(apart.at);
    const y = round(this.#curveY(apart.recorded) - 5);
    return this.#text("faint", x + 4, y, "what the stock’s record says", x - 4);
  }

  /** A text that begins at `x`, or ends at `before` if the drawing ends too soon. */
  #text(name: string, x: number, y: number, text: string, before: number): string {
    return x + TEXT > this.#width
      ? `<text class="${name} end" x="${round(before)}" y="${y}">${text}</text>`
      : `<text class="${name}" x="${round(x)}" y="${y}">${text}</text>`;
  }

  #ground(y: number, height: number, name = "lane"): string {
    return `<rect class="${name}" x="0" y="${y}" width="${Math.ceil(this.#width)}" height="${height}"/>`;
  }

  #bar(span: Interval, y: number, height: number, name: string): string {
    const { x, width } = this.#span(span);
    return `<rect class="${name}" x="${x}" y="${y}" width="${width}" height="${height}"/>`;
  }

  /** A part of a path. */
  #box(span: Interval, y: number, height: number): string {
    const { x, width } = this.#span(span);
    return `M${x} ${y}h${width}v${height}h-${width}z`;
  }

  #delay({ type, ...span }: Delay, top: number): string {
    const { x, width } = this.#span(span);
    if (type === "killed") return `<text class="killed" x="${x - 4}" y="${top + 19}">✝</text>`;
    const text = type === "slow" ? "slow service" : "frozen";
    const name =
      width > 84 ? `<text class="delayed" x="${x + 8}" y="${top + 18}">${text}</text>` : "";
    return `<rect class="${type}" x="${x}" y="${top + 8}" width="${width}" height="12"/>${name}`;
  }

  #arrow(message: Message, lane: number): string {
    const { type, from, to } = message;
    const wall = this.#resourceTop;
    const [x, end] = [this.#x(from), this.#x(to)];
    if (isToLockStore(message)) return this.#line(message, `M${x} ${lane + 5}V${AXIS + STORE}`);
    const y = lane + 23;
    if (type !== "refused") return this.#line(message, `M${x} ${y}L${end} ${wall}`);
    const back = round(y + (wall - y) * 0.45);
    const text = this.#text("bounced-text", end + 18, back + 4, this.#refusal(message), x - 6);
    return `${this.#line(message, `M${x} ${y}L${end} ${wall}L${end + 14} ${back}`)}${text}`;
  }

  #line({ type, token }: Message, line: string): string {
    const fence = token === undefined ? "" : ` data-fence="${this.#incident.shorten(token)}"`;
    return `<path class="message ${type}"${fence} d="${line}"/>`;
  }

  /** Says which fence is refused, and because of which one. */
  #refusal(message: Message): string {
    const { shorten } = this.#incident;
    if (message.token === undefined) return "refused";
    const newest = this.#newerFence(message);
    const fence = `fence ${shorten(message.token)}`;
    return newest === undefined
      ? `${fence}: refused`
      : `${fence} &lt; fence ${shorten(newest)}: refused`;
  }

  /** The newest fence that the stock had accepted when it refused an older one. */
  #newerFence({ token, to }: Message): string | undefined {
    return this.#incident.messages
      .filter((one) => one.to <= to && one.type !== "refused" && !isToLockStore(one))
      .map((one) => one.token)
      .findLast((one) => isNewer(one, token));
  }

  /** The parts of a belief in which another process believes the same. */
  #shared(belief: Belief): readonly Interval[] {
    const spans = this.#incident.beliefs
      .filter((other) => other !== belief && other.from < belief.to && other.to > belief.from)
      .map(({ from, to }) => ({ from: Math.max(from, belief.from), to: Math.min(to, belief.to) }))
      .sort((a, b) => a.from - b.from);
    const merged: { from: number; to: number }[] = [];
    for (const { from, to } of spans) {
      const last = merged.at(-1);
      if (last && from <= last.to) last.to = Math.max(last.to, to);
      else merged.push({ from, to });
    }
    return merged;
  }

  #within<T extends Interval>(spans: readonly T[]): readonly T[] {
    const { from, to } = this.#options;
    return spans.filter((span) => span.to >= from && span.from <= to);
  }

  get #width(): number {
    const { from, to, scale } = this.#options;
    return (to - from) * scale;
  }

  #laneTop(worker: number): number {
    return AXIS + STORE + GAP + worker * LANE;
  }

  #curveY(value: number): number {
    const { stock, curve } = this.#incident;
    const lowest = Math.min(0, ...curve.map(({ left }) => left));
    const inner = CURVE - 16;
    return round(this.#curveTop + 8 + ((stock - value) / (stock - lowest)) * inner);
  }

  #x(at: number): number {
    return round((at - this.#options.from) * this.#options.scale);
  }

  #span({ from, to }: Interval): { readonly x: number; readonly width: number } {
    const x = this.#x(from);
    // A span of a millisecond stays visible.
    return { x, width: Math.max(round(this.#x(to) - x), 2) };
  }
}

/** A row of texts that do not overlap. */
class Row {
  readonly #width: number;
  readonly #placed: Interval[] = [];

  constructor(width: number) {
    this.#width = width;
  }

  /** Takes the place of a text that begins at `from`, if the place is free. */
  hasRoom(text: string, from: number): boolean {
    const to = from + (text.length + 1) * LETTER;
    if (to > this.#width || this.#placed.some((one) => one.from < to && from < one.to))
      return false;
    this.#placed.push({ from, to });
    return true;
  }
}

function label(text: string, y: number, name = ""): string {
  return `<text class="label ${name}" x="${LABELS_WIDTH - 10}" y="${y + 4}">${text}</text>`;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
