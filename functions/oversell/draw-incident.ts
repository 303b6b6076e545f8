import type { Belief, Delay, Incident, Message } from "./incident.ts";
import type { Interval } from "./trace.ts";

/** The heights of the parts of the drawing, from top to bottom. */
const AXIS = 24;
const STORE = 30;
const LANE = 36;
const RESOURCE = 34;
const CURVE = 130;
const GAP = 8;

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
      ground(AXIS, STORE),
      ...Array.from({ length: workers }, (_, worker) => ground(this.#laneTop(worker), LANE - 2)),
      ground(this.#resourceTop, RESOURCE, "wall"),
      ground(this.#curveTop, CURVE),
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
        `<text class="faint" x="${x + 3}" y="${AXIS - 8}">${at / 1_000} s</text>`,
      );
    }
    return ticks.join("");
  }

  /** The holders of the lock according to the store. */
  store(): string {
    const grants = this.#within(this.#incident.grants).map(({ worker, token, ...span }) => {
      const { x, width } = this.#span(span);
      const text =
        width > 16 ? `<text class="on" x="${x + 4}" y="${AXIS + 20}">${worker + 1}</text>` : "";
      const title = `the lock belongs to process ${worker + 1}${token ? `, token ${token}` : ""}`;
      return `<g><title>${title}</title><rect class="truth" x="${x}" y="${AXIS + 4}" width="${width}" height="${STORE - 8}"/>${text}<path class="grant" d="M${x} ${AXIS + STORE - 4}V${this.#laneTop(worker) + 6}"/></g>`;
    });
    return grants.join("");
  }

  /** What the processes believe, and what is true. */
  processes(): string {
    const { beliefs, grants, delays } = this.#incident;
    const believed = this.#within(beliefs);
    const top = ({ worker }: { readonly worker: number }) => this.#laneTop(worker);
    return [
      ...believed.map((one) =>
        this.#bar(one, top(one) + 5, 18, one.overlaps ? "belief second" : "belief"),
      ),
      ...this.#within(grants).map((grant) => this.#bar(grant, top(grant) + 25, 6, "truth")),
      ...believed.flatMap((one) =>
        this.#shared(one).map((span) => this.#bar(span, top(one) + 5, 18, "both")),
      ),
      ...this.#within(delays).map((delay) => this.#delay(delay, top(delay))),
    ].join("");
  }

  /** The requests to the stock. A refused one bounces off. */
  arrows(): string {
    return this.#within(this.#incident.messages)
      .map((message) => this.#arrow(message, this.#laneTop(message.worker) + 23))
      .join("");
  }

  /** The answers of the stock. */
  resource(): string {
    const middle = this.#resourceTop + RESOURCE / 2;
    const left = new Map(this.#incident.curve.map((point) => [point.at, point.left]));
    const marks = this.#within(this.#incident.messages).map(({ type, to, worker }) => {
      const x = this.#x(to);
      const title = `<title>process ${worker + 1}: ${type}</title>`;
      if (type === "sold") {
        const isOver = (left.get(to) ?? 0) < 0;
        return `<circle class="${isOver ? "bad-mark" : "sale"}" cx="${x}" cy="${middle}" r="${isOver ? 5 : 3.5}">${title}</circle>`;
      }
      if (type === "refused")
        return `<path class="refusal" d="M${x - 5} ${middle - 5}l10 10m0 -10l-10 10">${title}</path>`;
      return "";
    });
    return marks.join("");
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
    ].join("");
  }

  #bar(span: Interval, y: number, height: number, name: string): string {
    const { x, width } = this.#span(span);
    return `<rect class="${name}" x="${x}" y="${y}" width="${width}" height="${height}"/>`;
  }

  #delay({ type, ...span }: Delay, top: number): string {
    const { x, width } = this.#span(span);
    if (type === "killed") return `<text class="bad" x="${x - 4}" y="${top + 19}">✝</text>`;
    const text = type === "slow" ? "slow service" : "frozen";
    const name =
      width > 84 ? `<text class="delayed" x="${x + 8}" y="${top + 18}">${text}</text>` : "";
    return `<rect class="${type}" x="${x}" y="${top + 8}" width="${width}" height="12"/>${name}`;
  }

  #arrow({ type, from, to, token }: Message, y: number): string {
    const wall = this.#resourceTop;
    const [x, end] = [this.#x(from), this.#x(to)];
    if (type !== "refused") {
      const name = type === "sold" || type === "claimed" ? type : "asked";
      return `<path class="message ${name}" d="M${x} ${y}L${end} ${wall}"/>`;
    }
    const back = round(y + (wall - y) * 0.45);
    const text = token ? `token ${token.slice(-6)} refused` : "refused";
    return `<path class="message bounced" d="M${x} ${y}L${end} ${wall}L${end + 14} ${back}"/><text class="bounced-text" x="${end + 16}" y="${back + 4}">${text}</text>`;
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

function ground(y: number, height: number, name = ""): string {
  return `<rect class="lane ${name}" x="0" y="${y}" width="100%" height="${height}"/>`;
}

function label(text: string, y: number, name = ""): string {
  return `<text class="label ${name}" x="${LABELS_WIDTH - 10}" y="${y + 4}">${text}</text>`;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
