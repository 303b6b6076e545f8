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
export function drawCharts(series: readonly Series[]): string {
  const titles = [...new Set(series.map(({ name, operation }) => `${name}: ${operation}`))];
  const charts = titles.map((title, i) => {
    const some = series.filter(({ name, operation }) => `${name}: ${operation}` === title);
    return drawChart(title, some).replace("<svg ", `<svg y="${i * HEIGHT}" `);
  });
  const height = charts.length * HEIGHT;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}">${charts.join("")}</svg>\n`;
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
  const svg = chart.renderToSVGString();
  chart.dispose();
  return svg;
}
