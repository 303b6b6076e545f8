import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const dashboard = readFileSync(join(root, "infra/monitoring/dashboard.json"), "utf8");

/** Grafana's own types of a dashboard. Literals of JSON stand for the members of enums. */
const CHECKED = `
import type { Dashboard, Panel, RowPanel } from "@grafana/schema";
import type { FieldConfig, Options } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

type Json<T> = T extends string ? \`\${T}\` : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
type Graph = Omit<Panel<never, FieldConfig>, "type" | "options" | "targets"> & {
  readonly type: "timeseries";
  readonly options: Options;
  readonly targets: readonly Query[];
};
interface Query {
  readonly refId: string;
  readonly expr: string;
  readonly legendFormat: string;
  readonly datasource: { readonly type: "prometheus"; readonly uid: string };
}
type Checked = Json<Omit<Dashboard, "panels"> & { readonly panels: readonly (RowPanel | Graph)[] }>;

export const dashboard: Checked = `;

/** Returns what the compiler finds wrong with a dashboard. */
function faultsOf(text: string): string {
  const cache = join(root, "node_modules/.cache");
  mkdirSync(cache, { recursive: true });
  // Within the project, so that the compiler finds the package.
  const folder = mkdtempSync(join(cache, "dashboard-"));
  const file = join(folder, "dashboard.ts");
  writeFileSync(file, `${CHECKED}${text};\n`);
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const options = [
    "--noEmit",
    "--strict",
    "--skipLibCheck",
    "--module",
    "nodenext",
    "--ignoreConfig",
  ];
  try {
    execFileSync(process.execPath, [tsc, ...options, file], { encoding: "utf8" });
    return "";
  } catch (error) {
    return Object(error).stdout;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("the dashboard has the shape that Grafana publishes, and a misspelt option has not", () => {
  expect(faultsOf(dashboard)).toBe("");
  expect(faultsOf(dashboard.replaceAll('"multi"', '"many"'))).toContain("many");
  expect(faultsOf(dashboard.replaceAll('"showLegend"', '"showLegends"'))).toContain("showLegends");
  expect(faultsOf(dashboard.replaceAll('"gridPos"', '"gridPosition"'))).toContain("gridPosition");
});

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly gridPos: {
    readonly h: number;
    readonly w: number;
    readonly x: number;
    readonly y: number;
  };
}

test("the panels have ids of their own, fit in Grafana's 24 columns and do not overlap", () => {
  const panels: readonly Panel[] = JSON.parse(dashboard).panels;
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  const cells = panels.flatMap(({ gridPos: { h, w, x, y } }) => {
    expect(x + w).toBeLessThanOrEqual(24);
    return Array.from({ length: h * w }, (_, i) => `${x + (i % w)},${y + Math.floor(i / w)}`);
  });
  expect(new Set(cells).size).toBe(cells.length);
});
