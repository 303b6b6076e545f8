import { expect, test } from "vitest";
import { emf } from "../../functions/telemetry/index.ts";

interface Line extends Readonly<Record<string, unknown>> {
  readonly _aws: {
    readonly Timestamp: number;
    readonly CloudWatchMetrics: readonly Directive[];
  };
}

interface Directive {
  readonly Namespace: string;
  readonly Dimensions: readonly (readonly string[])[];
  readonly Metrics: readonly { readonly Name: string; readonly Unit: string }[];
}

const UNITS = ["Seconds", "Count"];

/** The rules of CloudWatch's specification of the embedded metric format. */
function check(text: string): Line {
  expect(text).not.toContain("\n");
  expect(Buffer.byteLength(text)).toBeLessThan(256 * 1_024);
  const line = JSON.parse(text) as Line;
  expect(Object.keys(line._aws).sort()).toEqual(["CloudWatchMetrics", "Timestamp"]);
  expect(Number.isInteger(line._aws.Timestamp)).toBe(true);
  expect(Math.abs(Date.now() - line._aws.Timestamp)).toBeLessThan(60_000);
  expect(line._aws.CloudWatchMetrics.length).toBeGreaterThan(0);
  for (const directive of line._aws.CloudWatchMetrics) {
    expect(Object.keys(directive).sort()).toEqual(["Dimensions", "Metrics", "Namespace"]);
    checkDirective(directive, line);
  }
  return line;
}

function checkDirective({ Namespace, Dimensions, Metrics }: Directive, line: Line): void {
  expect(Namespace).toMatch(/^[^:].{0,254}$/);
  expect(Dimensions.length).toBeGreaterThan(0);
  for (const set of Dimensions) {
    expect(set.length).toBeLessThanOrEqual(30);
    expect(new Set(set).size).toBe(set.length);
    // Each refers to a member of the root, which is text.
    for (const name of set) {
      expect(name).toMatch(/^[^:\s][\x20-\x7e]{0,254}$/);
      expect(line[name]).toMatch(/^(?=.*\S)[\x20-\x7e]{1,1024}$/);
    }
  }
  expect(Metrics.length).toBeGreaterThan(0);
  expect(Metrics.length).toBeLessThanOrEqual(100);
  for (const { Name, Unit } of Metrics) {
    expect(UNITS).toContain(Unit);
    const values = [line[Name]].flat();
    expect(values.length).toBeGreaterThan(0);
    expect(values.length).toBeLessThanOrEqual(100);
    for (const value of values) expect(Number.isFinite(value)).toBe(true);
  }
}

function sink() {
  const texts: string[] = [];
  const dimensions = { service: "shop-dev" };
  return { ...emf({ dimensions, write: (line) => texts.push(line) }), texts };
}

test("a line has the metrics and dimensions that CloudWatch expects", () => {
  const { measure, flush, texts } = sink();
  const attributes = { "lockstep.outcome": "acquired" };
  measure("lockstep.lock.acquire.duration", 0.012, attributes);
  measure("lockstep.lock.acquire.duration", 0.5, attributes);
  expect(texts).toEqual([]);
  flush();
  expect(texts.map(check)).toEqual([
    {
      _aws: {
        Timestamp: expect.any(Number),
        CloudWatchMetrics: [
          {
            Namespace: "Lockstep",
            Dimensions: [["service"], ["service", "lockstep.outcome"]],
            Metrics: [{ Name: "lockstep.lock.acquire.duration", Unit: "Seconds" }],
          },
        ],
      },
      service: "shop-dev",
      "lockstep.outcome": "acquired",
      "lockstep.lock.acquire.duration": [0.012, 0.5],
    },
  ]);
});

test("each set of attributes has its own line, and no attributes means the service's dimensions only", () => {
  const { measure, flush, texts } = sink();
  measure("lockstep.lock.contention", 1, {});
  measure("lockstep.stock.sold_out", 1, {});
  measure("lockstep.lock.lost", 1, { "lockstep.reason": "expired" });
  measure("lockstep.lock.lost", 1, { "lockstep.reason": "taken" });
  flush();
  const lines = texts.map(check);
  expect(lines.map((line) => line["lockstep.reason"])).toEqual([undefined, "expired", "taken"]);
  const [first] = lines[0]?._aws.CloudWatchMetrics ?? [];
  expect(first?.Dimensions).toEqual([["service"]]);
  expect(first?.Metrics.map(({ Name }) => Name)).toEqual([
    "lockstep.lock.contention",
    "lockstep.stock.sold_out",
  ]);
});

test("a line has at most 100 values of a histogram, none is lost, and a counter is one sum", () => {
  const { measure, flush, texts } = sink();
  const spans = Array.from({ length: 250 }, (_, i) => i / 1_000);
  for (const span of spans) {
    measure("lockstep.lock.hold.duration", span, { "lockstep.outcome": "released" });
    measure("lockstep.stock.sold_out", 1, {});
  }
  flush();
  const lines = texts.map(check);
  const all = (name: string) => lines.flatMap((line) => (line[name] ?? []) as readonly number[]);
  expect(all("lockstep.lock.hold.duration")).toEqual(spans);
  const sold = all("lockstep.stock.sold_out");
  expect(sold.reduce((sum, value) => sum + value)).toBe(250);
  expect(lines.length).toBeLessThan(10);
});

test("names of workflows and steps are converted to valid dimensions", () => {
  const { measure, flush, texts } = sink();
  const workflow = `Bestellung für ${"x".repeat(2_000)}\n`;
  measure("lockstep.run.ended", 1, { "lockstep.workflow": workflow, "lockstep.outcome": "failed" });
  flush();
  expect(texts.map(check)[0]?.["lockstep.workflow"]).toMatch(/^Bestellung f\?r x+$/);
});

test("flushed measurements are not written again, and an empty flush writes no line", () => {
  const { measure, flush, texts } = sink();
  flush();
  measure("lockstep.lock.contention", 1, {});
  flush();
  flush();
  expect(texts).toHaveLength(1);
});

test("a line that cannot be written is dropped without an error", () => {
  let written = 0;
  const write = () => {
    written += 1;
    throw new Error("a pipe that is closed");
  };
  const { measure, flush } = emf({ dimensions: { service: "shop-dev" }, write });
  for (let i = 0; i < 100; i += 1) measure("lockstep.lock.hold.duration", 1, {});
  measure("lockstep.lock.contention", 1, {});
  flush();
  flush();
  expect(written).toBe(2);
});

test("without a flush the buffer is bounded for any attributes", () => {
  const { measure, flush, texts } = sink();
  for (let i = 0; i < 5_000; i += 1) {
    measure("lockstep.run.ended", 1, { "lockstep.workflow": `w-${i}` });
  }
  expect(texts.length).toBeGreaterThanOrEqual(4_000);
  flush();
  expect(new Set(texts.map((text) => check(text)["lockstep.workflow"])).size).toBe(5_000);
});

test.each([
  ["Geschäft\n", "Gesch?ft?"],
  [" ", "?"],
  ["", "?"],
])("the service's own name %j is made to be what CloudWatch takes, too", (service, expected) => {
  const texts: string[] = [];
  const dimensions = { service };
  const { measure, flush } = emf({ dimensions, write: (line) => texts.push(line) });
  measure("lockstep.lock.contention", 1, {});
  flush();
  expect(texts.map(check)).toMatchObject([{ service: expected }]);
});
