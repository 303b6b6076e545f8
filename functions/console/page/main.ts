import { html, nothing, render, type TemplateResult } from "lit-html";
import type { ConsoleInfo } from "../shapes.ts";
import { incidentsView } from "./incidents.ts";
import { locksView, lockView } from "./locks.ts";
import { queuesView } from "./queues.ts";
import { runsView, runView } from "./runs.ts";
import { read, setToken, TokenNeeded, takeTokenFromLink } from "./server.ts";
import { skuView, stockView } from "./stock.ts";
import type { AnyView, Place } from "./view.ts";

/** The pause between two readings: a lock of another process appears within a second. */
const POLL = 500;

const TABS = [
  { name: "locks", title: "Locks", part: undefined },
  { name: "stock", title: "Stock", part: "inventory" },
  { name: "runs", title: "Runs", part: "journal" },
  { name: "queues", title: "Queues", part: "journal" },
  { name: "incidents", title: "Incidents", part: undefined },
] as const;

let info: ConsoleInfo | undefined;

/** Counts the places that were shown: a reading for an earlier one is dropped. */
let shown = 0;

function placeOf(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").map(decodeURIComponent), query: new URLSearchParams(query) };
}

function viewAt(place: Place): AnyView {
  const [tab, name] = place.path;
  if (tab === "stock") return name ? skuView(name, place) : stockView(place);
  if (tab === "runs") return name ? runView(name, place) : runsView(place);
  if (tab === "queues") return queuesView(place);
  if (tab === "incidents") return incidentsView();
  return name ? lockView(name) : locksView(place);
}

/** Reads and draws what the address names, until it names something else. */
async function show(): Promise<void> {
  shown += 1;
  const mine = shown;
  const place = placeOf(location.hash);
  const view = viewAt(place);
  let body: TemplateResult | undefined;
  while (mine === shown) {
    const started = performance.now();
    let problem: string | undefined;
    try {
      info ??= await read<ConsoleInfo>("info");
      const answer = await view.load();
      body = view.draw(answer, info);
    } catch (error) {
      if (error instanceof TokenNeeded)
        return mine === shown ? draw(place, "Token", tokenForm()) : undefined;
      problem = (error as Error).message;
    }
    if (mine !== shown) return;
    draw(place, view.title, body, problem);
    await visible();
    await pause(Math.max(POLL, performance.now() - started));
  }
}

function draw(place: Place, title: string, body?: TemplateResult, problem?: string): void {
  document.title = `${title} · Lockstep`;
  render(
    html`
      <header>
        <h1>Lockstep</h1>
        <nav aria-label="Parts">${TABS.map((tab) => drawTab(tab, place))}</nav>
        <p class="store">${info && (info.locks === info.store ? info.store : `${info.store}, locks ${info.locks}`)}${info?.readOnly ? " · read-only" : nothing}</p>
        <p class="live ${problem ? "broken" : ""}" role="status">${problem ? `No news: ${problem}` : "live"}</p>
      </header>
      <main>${body ?? nothing}</main>`,
    document.body,
  );
}

function drawTab({ name, title, part }: (typeof TABS)[number], place: Place): TemplateResult {
  if (info && part && !info.has.includes(part)) {
    return html`<span class="missing" title="this store has no ${part}">${title}: not in this store</span>`;
  }
  const isCurrent = (place.path[0] || "locks") === name;
  return html`<a href="#/${name}" aria-current=${isCurrent ? "page" : "false"}>${title}</a>`;
}

function tokenForm(): TemplateResult {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setToken(String(new FormData(event.currentTarget as HTMLFormElement).get("token")));
    void show();
  };
  return html`<form class="token" @submit=${submit}>
    <p>The console needs its token: the server has printed it, or LOCKSTEP_TOKEN names it.</p>
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

takeTokenFromLink();
addEventListener("hashchange", () => void show());
void show();
