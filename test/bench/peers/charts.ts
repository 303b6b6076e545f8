import { init } from "echarts";

/** The cost of an operation of one store against a size. */
interface Series {
  readonly store: string;
  readonly name: string;
  readonly operation: string;
  readonly points: readonly { readonly size: number; readonly millis: number }[];
  readonly exponent: number | undefined;
}

const [WIDTH, HEIGHT] = [860, 380];

/** Draws one chart for each thing that grows, with a line for each store. Both axes are logarithmic. */
export function drawGrowth(series: readonly Series[]): string {
  const titles = [...new Set(series.map(({ name, operation }) => `${name}: ${operation}`))];
  const charts = titles.map((title, i) => {
    const some = series.filter(({ name, operation }) => `${name}: ${operation}` === title);
    return drawChart(title, some).replace("<svg ", `<svg y="${i * HEIGHT}" `);
  });
  const height = charts.length * HEIGHT;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}"><title>Cost against size</title>${charts.join("")}</svg>\n`;
}

function drawChart(title: string, series: readonly Series[]): string {
  const chart = init(null, null, { renderer: "svg", ssr: true, width: WIDTH, height: HEIGHT });
  chart.setOption({
    animation: false,
    backgroundColor: "#fff",
    title: { text: title, left: 12, top: 8, textStyle: { fontSize: 15 } },
    legend: { type: "plain", orient: "vertical", left: WIDTH - 160, top: "middle" },
    grid: { left: 76, right: 190, top: 56, bottom: 52 },
    xAxis: { type: "log", name: series[0]?.name ?? "", nameLocation: "middle", nameGap: 30 },
    yAxis: { type: "log", name: "ms", axisLabel: { formatter: String } },
    series: series.map(({ store, exponent, points }) => ({
      type: "line",
      name: exponent === undefined ? store : `${store} (${exponent})`,
      symbolSize: 6,
      data: points.map(({ size, millis }) => [size, millis]),
    })),
  });
  const svg = chart.renderToSVGString().replace(">", `><title>${title}</title>`);
  chart.dispose();
  return svg;
}

/** A measured ratio as a part of its aim: above 1, the aim is met. */
interface Bar {
  readonly suite: string;
  readonly name: string;
  readonly value: number;
  readonly low: number;
  readonly high: number;
  readonly met: boolean;
}

const [BAR_WIDTH, LABEL, ROW, MET, MISSED] = [1_080, 560, 20, "#1a7f5a", "#c2410c"];

/** Draws the ratios of all suites on one logarithmic axis, with their intervals. The shape of a point tells as well whether the aim is met. */
export function drawRatios(bars: readonly Bar[]): string {
  const height = bars.length * ROW + 110;
  const chart = init(null, null, { renderer: "svg", ssr: true, width: BAR_WIDTH, height });
  const colorOf = ({ met }: Bar) => (met ? MET : MISSED);
  chart.setOption({
    animation: false,
    backgroundColor: "#fff",
    title: {
      text: "Measured over aimed at: right of the line, the aim is met",
      ...{ left: 12, top: 8, textStyle: { fontSize: 15 } },
    },
    grid: { left: LABEL + 12, right: 40, top: 48, bottom: 44 },
    xAxis: { type: "log", min: 0.1, max: 10, axisLabel: { formatter: String } },
    yAxis: {
      type: "category",
      inverse: true,
      data: bars.map(({ suite, name }) => `${suite}: ${name}`),
      axisTick: { show: false },
      axisLabel: { width: LABEL, overflow: "truncate", fontSize: 11 },
    },
    series: [
      ...bars.map((bar, i) => ({
        type: "line",
        symbol: "none",
        silent: true,
        lineStyle: { width: 3, opacity: 0.45, color: colorOf(bar) },
        data: [
          [bar.low, i],
          [bar.high, i],
        ],
      })),
      {
        type: "scatter",
        symbolSize: 9,
        data: bars.map((bar, i) => ({
          value: [bar.value, i],
          symbol: bar.met ? "circle" : "diamond",
          itemStyle: { color: colorOf(bar) },
        })),
        markLine: {
          silent: true,
          symbol: "none",
          label: { show: false },
          lineStyle: { color: "#333", type: "solid" },
          data: [{ xAxis: 1 }],
        },
      },
    ],
  });
  const svg = chart.renderToSVGString().replace(">", "><title>Ratios over their aims</title>");
  chart.dispose();
  return `${svg}\n`;
}
