import { html, nothing, svg, type TemplateResult } from "lit-html";
import type { RunInfo } from "../../../core/journal/queries.ts";
import { isOpen, RUN_STATUSES } from "../../../core/journal/runs.ts";
import type { Bar } from "../shapes.ts";
import { type Action, button } from "./actions.ts";
import { clock, formatDuration, href, randomId, shortFence } from "./format.ts";
import { type Cell, choice, emptyLine, facts, searchField, table } from "./parts.ts";
import { now, read } from "./server.ts";
import { type AnyView, type Route, refine, view } from "./view.ts";

/** As JSON. */
type Run = Omit<RunInfo, "epoch" | "startedAt" | "changedAt" | "dueAt" | "inProgress" | "error"> & {
  readonly epoch: string;
  readonly startedAt: string;
  readonly changedAt: string;
  readonly dueAt?: string;
  readonly error?: string;
  readonly inProgress: readonly { readonly waitsFor?: string }[];
};

/** The holders of busy locks, as far as the lock store tells. */
type Holders = Readonly<Record<string, string>>;

/** The runs, newest first. */
export function runsView(route: Route): AnyView {
  const word = (name: string) => route.query.get(name) ?? "";
  const words = () => Object.fromEntries(route.query);
  return view<{ readonly runs: readonly Run[] }>({
    title: "Runs",
    load: () => read("runs", words()),
    draw: ({ runs }) => html`
      <form class="filters" @submit=${(event: Event) => event.preventDefault()}>
        ${choice(route, "status", "Status", RUN_STATUSES)} ${searchField(route, "workflow", "Workflow")}
        ${searchField(route, "queue", "Queue")} ${searchField(route, "key", "Key")}
      </form>
      ${
        runs.length === 0
          ? emptyLine("There are no such runs.")
          : table(
              word("after") ? `Runs before ${word("after")}` : "Newest runs",
              [
                "Run",
                "Workflow",
                "Status",
                "Waits for",
                "Started",
                "Queue",
                "#Crashes",
                "Last executed by",
              ],
              runs.map((run) => [
                html`<a href=${href("runs", run.runId)}>${run.runId}</a>`,
                `${run.workflow} v${run.version}`,
                statusOf(run),
                html`${waitOf(run)}${errorOf(run)}`,
                clock(run.startedAt),
                run.key === undefined ? run.queue : `${run.queue} / ${run.key}`,
                run.crashes || undefined,
                run.owner,
              ]),
            )
      }
      ${
        runs.length === 200
          ? html`<button @click=${() => refine(route, { after: runs.at(-1)?.runId ?? "" })}>Older runs</button>`
          : nothing
      }`,
  });
}

function statusOf({ status, cancelled }: Run): TemplateResult {
  const isCancelling = cancelled && isOpen(status);
  return html`<span class="badge ${status}">${status}</span>${isCancelling ? " to be cancelled" : nothing}`;
}

const REASONS: Readonly<Record<NonNullable<Run["reason"]>, string>> = {
  sleep: "a pause",
  signal: "a signal",
  deadline: "a process: stopped at a deadline",
  "lock-busy": "a lock",
  debounce: "further starts with its key",
  "retry-delay": "the next attempt of a step",
  child: "another run",
};

function waitOf(run: Run, holders: Holders = {}): Cell {
  const { status, reason, dueAt, waitsFor, inProgress } = run;
  const busy = waitsFor ?? inProgress.find((step) => step.waitsFor !== undefined)?.waitsFor;
  const lock = busy === undefined ? undefined : lockWait(busy, holders);
  if (status !== "parked" && status !== "blocked") return lock;
  const what = lock ?? (status === "blocked" ? "a fix" : reason ? REASONS[reason] : "a worker");
  if (dueAt === undefined) return what;
  const left = Date.parse(dueAt) - now();
  return html`${what}${left > 0 ? `, due in ${formatDuration(left)}` : "; due"}`;
}

/** Why the run is blocked. */
function errorOf({ error }: Run): TemplateResult | typeof nothing {
  return error === undefined ? nothing : html`<div class="error">${error}</div>`;
}

function lockWait(lock: string, holders: Holders): TemplateResult {
  const holder = holders[lock];
  return html`lock <a href=${href("locks", lock)}>${lock}</a>${holder === undefined ? nothing : `, held by ${holder}`}`;
}

interface RunAnswer extends Run {
  readonly now: string;
  readonly input: string;
  readonly output?: string;
  readonly compensated?: string;
  readonly endedAt?: string;
  readonly next?: string;
  readonly forks: readonly string[];
  readonly bars: readonly Bar[];
  readonly holders: Holders;
}

/** One run and its steps. */
export function runView(id: string, route: Route): AnyView {
  const word = (name: string) => route.query.get(name) ?? "";
  return view<RunAnswer>({
    title: id,
    load: () => read("run", { id, after: word("after"), part: word("part") }),
    draw: (run, { readOnly }) => html`
      <h2>${id}</h2>
      ${facts([
        ["Workflow", `${run.workflow} v${run.version}`],
        ["Status", statusOf(run)],
        ["Waits for", waitOf(run, run.holders)],
        ["Started", clock(run.startedAt)],
        ["Ended", clock(run.endedAt)],
        ["Queue", run.key === undefined ? run.queue : `${run.queue}, key ${run.key}`],
        ["Last executed by", run.owner],
        ["Consecutive crashes", run.crashes || undefined],
        [
          "Forked from",
          run.origin && html`<a href=${href("runs", run.origin.runId)}>${run.origin.runId}</a>`,
        ],
        [
          "Forks",
          run.forks.length > 0
            ? html`${run.forks.map((fork) => html`<a href=${href("runs", fork)}>${fork}</a> `)}`
            : undefined,
        ],
        ["Input", html`<code>${run.input}</code>`],
        ["Output", run.output && html`<code>${run.output}</code>`],
        ["Error", run.error && html`<span class="error">${run.error}</span>`],
        ["All steps undone", run.compensated],
      ])}
      ${readOnly ? nothing : html`<p class="actions">${actionsOf(run).map(button)}</p>`}
      ${run.bars.length === 0 ? emptyLine("No steps yet.") : waterfall(run.bars, run.holders)}
      ${run.next === undefined ? nothing : html`<button @click=${() => refine(route, { after: run.next ?? "" })}>More records</button>`}`,
  });
}

/** The actions that the run's status allows. */
function actionsOf({ runId, status, queue }: RunAnswer): readonly Action[] {
  const fork = forkOf(runId);
  const retry = retryOf(runId);
  if (!isOpen(status)) return status === "completed" ? [fork] : [retry, fork];
  const open = [signalOf(runId), cancelOf(runId), fork, limitOf(queue)];
  return status === "blocked" ? [retry, ...open] : open;
}

function cancelOf(run: string): Action {
  return {
    title: "Cancel",
    name: "cancel",
    does: "Stops the run and its children, and undoes their steps. A worker does it.",
    target: run,
    body: () => ({ run }),
  };
}

function retryOf(run: string): Action {
  return {
    title: "Retry",
    name: "retry",
    does: "Lets the run go on: recorded results are used again, the step that failed and the steps that were undone are executed again. A worker does it.",
    target: run,
    body: () => ({ run }),
  };
}

function forkOf(run: string): Action {
  // One id for all attempts of this form: a second one starts no second run.
  const id = randomId();
  return {
    title: "Fork",
    name: "fork",
    does: "Starts a new run with this run's results before a step, and executes that step and all later ones. Their effects happen once more. This run does not change.",
    target: run,
    fields: [
      { name: "from", label: "First step to execute" },
      { name: "as", label: "Id of the new run, or nothing for a random one", isOptional: true },
    ],
    body: ({ from, as }) => ({ run, from, as: as || id }),
  };
}

function limitOf(queue: string): Action {
  return {
    title: "Set limits of its queue",
    name: "limit",
    does: "Sets how many runs of the queue all workers together execute at a time. An empty field keeps its limit.",
    target: queue,
    fields: [
      { name: "concurrency", label: "Runs at a time", isOptional: true },
      { name: "perKey", label: "Runs with the same key at a time", isOptional: true },
    ],
    body: ({ concurrency, perKey }) => ({
      queue,
      ...(concurrency && { concurrency: Number(concurrency) }),
      ...(perKey && { perKey: Number(perKey) }),
    }),
  };
}

function signalOf(run: string): Action {
  // One id for all attempts of this form: a second click sends no second signal.
  const dedupeId = randomId();
  return {
    title: "Send signal",
    name: "signal",
    does: "Sends a signal to the run, which may wait for it.",
    target: run,
    fields: [
      { name: "name", label: "Signal" },
      { name: "payload", label: "Payload, as JSON", value: "{}" },
    ],
    body: ({ name, payload = "" }) => ({ run, name, payload: JSON.parse(payload), dedupeId }),
  };
}

function waterfall(bars: readonly Bar[], holders: Holders): TemplateResult {
  const end = Math.max(1, ...bars.map(({ at }) => at));
  return table(
    `Steps, over ${formatDuration(end)}`,
    ["Step", "Outcome", "#Took", "#Waited", "#Fence", "Time"],
    bars.map((bar) => [
      html`${bar.isResumed ? html`<span title="another execution: the run was parked, or its process was lost">↻ </span>` : nothing}${bar.step}`,
      html`<span class="badge ${bar.style}">${bar.label}</span>${bar.error === undefined ? nothing : html`<div class="error">${bar.error}</div>`}${bar.waitsFor === undefined ? nothing : html`<div>for ${lockWait(bar.waitsFor, holders)}</div>`}`,
      bar.took === undefined ? undefined : formatDuration(bar.took),
      bar.waited === undefined ? undefined : formatDuration(bar.waited),
      shortFence(bar.fence),
      drawBar(bar, end),
    ]),
  );
}

/** The width of a waterfall in its own units. */
const WIDTH = 1_000;

function drawBar({ waitedFrom, from, at, style, step, label }: Bar, end: number): TemplateResult {
  const x = (time: number) => (time / end) * WIDTH;
  const width = Math.max(3, x(at) - x(from));
  const text = `${step} ${label}: ${formatDuration(from)} to ${formatDuration(at)}`;
  return html`<svg class="bar" viewBox="0 0 ${WIDTH} 16" preserveAspectRatio="none" role="img" aria-label=${text}>
    ${from > waitedFrom ? svg`<rect class="lock" x=${x(waitedFrom)} y="5" width=${x(from) - x(waitedFrom)} height="6"></rect>` : nothing}
    <rect class=${style} x=${Math.min(x(from), WIDTH - 3)} y="2" width=${width} height="12"></rect>
  </svg>`;
}
