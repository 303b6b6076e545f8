import { html, nothing, type TemplateResult } from "lit-html";
import { now } from "./server.ts";

export { escapeControls } from "../../display/escape-controls.ts";
export { formatDuration } from "../../display/format-duration.ts";

/** Shortens fences for display: "0000000000.00000000000000000017" becomes "0.17". */
export function shortFence(fence: string | undefined): string {
  if (fence === undefined) return "";
  return fence.replace(/\b0+(?=\d)/g, "");
}

/** Returns the time of day, with the date in its title. */
export function clock(at: string | undefined): TemplateResult | typeof nothing {
  if (at === undefined) return nothing;
  const date = new Date(at);
  const isToday = date.toDateString() === new Date(now()).toDateString();
  const shown = isToday ? date.toLocaleTimeString() : date.toLocaleString();
  return html`<time datetime=${at} title=${date.toISOString()}>${shown}</time>`;
}

/** Returns the milliseconds since a time of the server. */
export function since(at: string): number {
  return Math.max(0, now() - Date.parse(at));
}

/** Returns a link within the page. */
export function href(...parts: readonly string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** Returns a random id. Browsers have crypto.randomUUID on secure pages alone. */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
