import { html, nothing, render, type TemplateResult } from "lit-html";
import type { ConsoleInfo } from "../shapes.ts";
import { incidentsView } from "./incidents.ts";
import { locksView, lockView } from "./locks.ts";
import { queuesView } from "./queues.ts";
import { runsView, runView } from "./runs.ts";
import { read, setToken, TokenNeeded, takeTokenFromLink } from "./server.ts";
import { skuView, stockView } from "./stock.ts";
import { type AnyView, decoded, type Route } from "./view.ts";

/** The pause between two readings: a lock of another process appears within a second. */
const POLL = 500;

/** The age at which data is no longer called live. */
const STALE = 2_000;

const TABS = [
  { name: "locks", title: "Locks", part: undefined },
  { name: "stock", title: "Stock", part: "inventory" },
  { name: "runs", title: "Runs", part: "journal" },
  { name: "queues", title: "Queues", part: "journal" },
  { name: "incidents", title: "Incidents", part: undefined },
] as const;

let info: ConsoleInfo | undefined;

/** The last reading. */
interface Reading {
  /** When the last answer came, by the clock of this page. */
  readonly answeredAt?: number | undefined;

  /** How long that answer took, in milliseconds. */
  readonly took?: number;

  /** Why there was no answer since. */
  readonly problem?: string;

  /** Whether a token is needed. */
  readonly isLocked?: boolean;
}

let reading: Reading = {};

/** Counts the places that were shown: a reading for an earlier one is dropped. */
let shown = 0;

function routeOf(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").map(decoded), query: new URLSearchParams(query) };
}

function viewAt(route: Route): AnyView {
  const [tab, name] = route.path;
  if (tab === "stock") return name ? skuView(name, route) : stockView(route);
  if (tab === "runs") return name ? runView(name, route) : runsView(route);
  if (tab === "queues") return queuesView(route);
  if (tab === "incidents") return incidentsView();
  return name ? lockView(name) : locksView(route);
}

/** Reads and draws what the address names, until it names something else. */
async function show(): Promise<void> {
  takeTokenFromLink();
  shown += 1;
  const mine = shown;
  const route = routeOf(location.hash);
  const view = viewAt(route);
  let body: TemplateResult | undefined;
  while (mine === shown) {
    const started = performance.now();
    try {
      info ??= await read<ConsoleInfo>("info");
      const answer = await view.load();
      if (mine !== shown) return;
      body = view.draw(answer, info);
      reading = { answeredAt: Date.now(), took: performance.now() - started };
    } catch (error) {
      if (mine !== shown) return;
      const { message } = error as Error;
      if (error instanceof TokenNeeded) {
        reading = { isLocked: true };
        return draw(route, "Token", tokenForm(message));
      }
      reading = { answeredAt: reading.answeredAt, problem: message };
    }
    draw(route, view.title, body);
    await visible();
    await pause(Math.max(POLL, performance.now() - started));
  }
}

function draw(route: Route, title: string, body?: TemplateResult): void {
  document.title = `${title} · Lockstep`;
  render(
    html`
      <header>
        <h1>Lockstep</h1>
        <nav aria-label="Parts">${TABS.map((tab) => drawTab(tab, route))}</nav>
        <p class="store">${info && (info.locks === info.store ? info.store : `${info.store}, locks ${info.locks}`)}${info?.readOnly ? " · read-only" : nothing}</p>
        <p class="live" role="status"></p>
      </header>
      <main>${body ?? nothing}</main>`,
    document.body,
  );
  drawStatus();
}

/** Tells how new the page is. Between two answers it changes alone: to draw all again would undo what is being typed. */
function drawStatus(): void {
  const line = document.querySelector(".live");
  const status = statusOf(reading);
  line?.classList.toggle("broken", status !== "live");
  // A screen reader reads each change aloud.
  if (line && line.textContent !== status) line.textContent = status;
}

function statusOf({ answeredAt, took = 0, problem, isLocked }: Reading): string {
  if (isLocked) return "locked";
  const since = answeredAt && ` since ${new Date(answeredAt).toLocaleTimeString()}`;
  if (problem !== undefined) return `No news${since ?? ""}: ${problem}`;
  if (answeredAt === undefined) return "No answer yet";
  // A slow server is asked as long after its answer as that took.
  return Date.now() - answeredAt > Math.max(STALE, 3 * took) ? `No news${since}` : "live";
}

function drawTab({ name, title, part }: (typeof TABS)[number], route: Route): TemplateResult {
  if (info && part && !info.has.includes(part)) {
    return html`<span class="missing" title="this store has no ${part}">${title}: not in this store</span>`;
  }
  const isCurrent = (route.path[0] || "locks") === name;
  return html`<a href="#/${name}" aria-current=${isCurrent ? "page" : "false"}>${title}</a>`;
}

/** Draws the form for the token, and why it is needed. */
function tokenForm(problem: string): TemplateResult {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    setToken(String(new FormData(form).get("token")));
    form.reset();
    void show();
  };
  return html`<form class="token" @submit=${submit}>
    <p role="alert"><b>${problem}</b></p>
    <p>The server has printed the token, or LOCKSTEP_TOKEN names it.</p>
    <label>Token <input name="token" type="password" required autocomplete="off"></label>
    <button>Open</button>
  </form>`;
}

/** Resolves when the page can be seen. */
async function visible(): Promise<void> {
  if (!document.hidden) return;
  await new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
  });
}

function pause(millis: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, millis));
}

addEventListener("hashchange", () => void show());
draw(routeOf(location.hash), "Console");
setInterval(drawStatus, 1_000);
void show();
