import type { CustomSeriesOption, EChartsOption } from "echarts";
import { importError } from "../../core/stores/peer.ts";
import { type Hold, holdsOf, type Observations } from "./observations.ts";
import { judge } from "./report.ts";
import { overlapping } from "./trace.ts";

const WIDTH = 1_200;
const HEAD = 50;
const LANE = 16;

/**
 * Loads the renderer of the lock's holders over time: an SVG document with a panel per strategy and a lane per process.
 *
 * Rejects with a TypeError if the package echarts is not installed.
 */
export async function loadPictureRenderer(): Promise<
  (observations: readonly Observations[]) => string
> {
  try {
    const echarts = await import("echarts");
    return (observations) => draw(echarts, observations);
  } catch (error) {
    throw importError("echarts", error);
  }
}

function draw(echarts: typeof import("echarts"), observations: readonly Observations[]): string {
  const panels = observations.map(toPanel);
  const height = panels.reduce((sum, panel) => sum + panel.height, HEAD);
  const chart = echarts.init(null, null, { renderer: "svg", ssr: true, width: WIDTH, height });
  try {
    chart.setOption(toOption(panels));
    return chart.renderToSVGString();
  } finally {
    chart.dispose();
  }
}

interface Panel {
  readonly title: string;
  readonly lanes: readonly string[];
  readonly height: number;
  readonly bars: readonly Bar[];
}

interface Bar {
  readonly lane: number;
  readonly from: number;
  readonly to: number;
  readonly kind: keyof typeof COLOURS;
}

/** The palette of Okabe and Ito, distinguishable for colour-blind readers. */
const COLOURS = {
  "holds the lock": "#56b4e9",
  "overlaps another holder": "#d55e00",
  "slow service": "#f0e442",
  frozen: "#0072b2",
  killed: "#000000",
  "refused by its fence": "#009e73",
} as const;

const KINDS = Object.keys(COLOURS) as (keyof typeof COLOURS)[];

function toPanel(observed: Observations): Panel {
  const { name, sold, oversold, lost, duplicates, refused } = judge(observed);
  const holds = holdsOf(observed.handlings);
  const late = new Set(overlapping(holds));
  const workers = Math.max(0, ...holds.map(({ handling }) => handling.worker + 1));
  const title =
    `${name}: ${sold} of ${observed.stock} sold, ${oversold} oversold, ${lost} lost, ` +
    `${duplicates} twice, ${refused} refused${workers === 0 ? " (no lock)" : ""}`;
  return {
    title,
    lanes: Array.from({ length: workers }, (_, i) => `process ${i + 1}`),
    height: workers === 0 ? 30 : 70 + workers * LANE,
    bars: holds.map((hold) => ({
      lane: hold.handling.worker,
      from: hold.from,
      to: hold.to,
      kind: kindOf(hold, late.has(hold)),
    })),
  };
}

function kindOf({ handling }: Hold, isOverlapping: boolean): Bar["kind"] {
  const { answer, fault: outcome } = handling;
  if (answer === "refused") return "refused by its fence";
  if (outcome === "freeze") return "frozen";
  if (outcome === "kill-before" || outcome === "kill-after") return "killed";
  if (isOverlapping) return "overlaps another holder";
  return outcome === "slow" ? "slow service" : "holds the lock";
}

function toOption(panels: readonly Panel[]): EChartsOption {
  const placed = panels.map((panel, i) => ({
    ...panel,
    top: panels.slice(0, i).reduce((sum, { height }) => sum + height, HEAD),
  }));
  const drawn = placed.filter(({ lanes }) => lanes.length > 0);
  return {
    animation: false,
    backgroundColor: "#ffffff",
    color: KINDS.map((kind) => COLOURS[kind]),
    legend: { top: 10, itemGap: 40, data: [...KINDS] },
    title: placed.map(({ title, top }) => ({
      text: title,
      left: 20,
      top: top + 2,
      textStyle: { fontSize: 13 },
    })),
    grid: drawn.map(({ lanes, top }) => ({
      left: 90,
      right: 30,
      top: top + 26,
      height: lanes.length * LANE,
    })),
    xAxis: drawn.map((_, gridIndex) => ({
      gridIndex,
      type: "value" as const,
      min: 0,
      axisLabel: { formatter: "{value} ms" },
    })),
    yAxis: drawn.map(({ lanes }, gridIndex) => ({
      gridIndex,
      type: "category" as const,
      data: [...lanes],
      inverse: true,
    })),
    series: drawn.flatMap((panel, i) => KINDS.map((kind) => toSeries(panel, i, kind))),
  };
}

function toSeries({ bars }: Panel, index: number, kind: Bar["kind"]): CustomSeriesOption {
  return {
    type: "custom",
    name: kind,
    xAxisIndex: index,
    yAxisIndex: index,
    itemStyle: { color: COLOURS[kind] },
    encode: { x: [1, 2], y: 0 },
    data: bars.filter((bar) => bar.kind === kind).map(({ lane, from, to }) => [lane, from, to]),
    renderItem(_, api) {
      const [left = 0, middle = 0] = api.coord([api.value(1), api.value(0)]);
      const [right = 0] = api.coord([api.value(2), api.value(0)]);
      // A hold of a millisecond stays visible.
      const width = Math.max(right - left, 1.5);
      return {
        type: "rect",
        shape: { x: left, y: middle - LANE / 2 + 2, width, height: LANE - 4 },
        style: { fill: COLOURS[kind] },
      };
    },
  };
}
