import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { Journal } from "../../core/journal/journal.ts";
import type { QueueDepth } from "../../core/journal/queries.ts";
import { deadline, noAnswer, race } from "../../core/lock/abort.ts";
import type { Millis } from "../../core/lock/time.ts";
import type { FetchApp } from "../http/lambda.ts";
import {
  type Attributes,
  BOUNDARIES,
  METRICS,
  type MetricName,
  metricTelemetry,
} from "./metrics.ts";
import type { Telemetry } from "./telemetry.ts";

/** The time in which the journal must answer a scrape. Prometheus waits for 10 s by default. */
const READ_LIMIT: Millis = 2_000;

/**
 * The metrics of this process, and the depths of the journal's queues, in Prometheus's text format.
 *
 * The names are those that OpenTelemetry's exporters for Prometheus derive from METRICS.
 */
export class PrometheusMetrics {
  /** Counts the events of this process. */
  readonly telemetry: Telemetry;
  readonly #registry = new Registry();
  readonly #up: Gauge;
  readonly #runs: Gauge<"queue" | "status">;
  readonly #due: Gauge<"queue">;
  readonly #oldest: Gauge<"queue">;
  #rendering: Promise<string> | undefined;

  constructor() {
    const registers = [this.#registry];
    const instruments = new Map(
      (Object.keys(METRICS) as MetricName[]).map((name) => [name, this.#instrument(name)]),
    );
    this.telemetry = metricTelemetry((metric, value, attributes) =>
      instruments.get(metric)?.(value, attributes),
    );
    this.#up = new Gauge({
      ...{ name: "lockstep_journal_up", registers },
      help: "1 if the journal has answered this scrape within two seconds, else 0",
    });
    this.#runs = new Gauge({
      ...{ name: "lockstep_runs", labelNames: ["queue", "status"], registers },
      help: "Open runs in the journal, by queue and status",
    });
    this.#due = new Gauge({
      ...{ name: "lockstep_due_runs", labelNames: ["queue"], registers },
      help: "Runs in the journal that wait for a worker, by queue",
    });
    this.#oldest = new Gauge({
      ...{ name: "lockstep_oldest_due_run_age_seconds", labelNames: ["queue"], registers },
      help: "Time since the oldest due run became due, by queue; 0 if none is due",
    });
    collectDefaultMetrics({ register: this.#registry });
  }

  /** Wraps an app: GET /metrics answers with the metrics. */
  serve(app: FetchApp, journal: Pick<Journal, "queueDepths">): FetchApp {
    return {
      fetch: async (request, platform) => {
        const { pathname } = new URL(request.url);
        if (pathname !== "/metrics" || request.method !== "GET") {
          return app.fetch(request, platform);
        }
        const headers = { "Content-Type": this.#registry.contentType };
        return new Response(await this.#render(journal), { headers });
      },
    };
  }

  /** Concurrent scrapes share one read of the journal. */
  #render(journal: Pick<Journal, "queueDepths">): Promise<string> {
    this.#rendering ??= this.#readDepths(journal)
      .then(() => this.#registry.metrics())
      .finally(() => {
        this.#rendering = undefined;
      });
    return this.#rendering;
  }

  /** Never rejects: without an answer of the journal, its metrics are missing. */
  async #readDepths(journal: Pick<Journal, "queueDepths">): Promise<void> {
    using limit = deadline(READ_LIMIT, noAnswer);
    const reading = race(journal.queueDepths(), limit.signal);
    const depths = await reading.catch(() => undefined);
    this.#up.set(depths ? 1 : 0);
    for (const gauge of [this.#runs, this.#due, this.#oldest]) gauge.reset();
    for (const depth of depths ?? []) this.#setDepth(depth);
  }

  #setDepth({ queue, due, oldestDueFor, ...depth }: QueueDepth): void {
    for (const status of ["running", "parked", "blocked"] as const) {
      this.#runs.set({ queue, status }, depth[status]);
    }
    this.#due.set({ queue }, due);
    this.#oldest.set({ queue }, oldestDueFor / 1_000);
  }

  /** Known series begin at 0: a rate needs a value before the first event. */
  #instrument(metric: MetricName): (value: number, attributes: Attributes) => void {
    const { type, description: help, attributes } = METRICS[metric];
    const labelNames = Object.keys(attributes).map(toName);
    const options = { help, labelNames, registers: [this.#registry] };
    const series = combinations(attributes);
    if (type === "counter") {
      const counter = new Counter({ ...options, name: `${toName(metric)}_total` });
      for (const known of series) counter.inc(toLabels(known), 0);
      return (value, given) => counter.inc(toLabels(given), value);
    }
    const name = `${toName(metric)}_seconds`;
    const histogram = new Histogram({ ...options, name, buckets: [...BOUNDARIES] });
    for (const known of series) histogram.zero(toLabels(known));
    return (value, given) => histogram.observe(toLabels(given), value);
  }
}

function toName(name: string): string {
  return name.replaceAll(".", "_");
}

function toLabels(attributes: Attributes): Record<string, string> {
  return Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [toName(name), value]),
  );
}

/** Returns all combinations of the attributes' values. */
function combinations(
  attributes: Readonly<Record<string, readonly string[]>>,
): readonly Attributes[] {
  return Object.entries(attributes).reduce<readonly Attributes[]>(
    (all, [name, values]) =>
      all.flatMap((one) => values.map((value) => ({ ...one, [name]: value }))),
    [{}],
  );
}
