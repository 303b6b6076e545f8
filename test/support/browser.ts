import axe from "axe-core";
import { chromium, type Page } from "playwright-core";
import { findOrThrow } from "../../infra/servers/binaries.ts";

/** Without the last of these it would look for hosts of its maker's at every start. */
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-component-update",
  "--disable-sync",
  "--disable-background-networking",
];

/** How long a test may take that installs the browser first. */
export const INSTALLING_BROWSER = 300_000;

export async function startBrowser() {
  const required = { binaries: ["chromium"], packages: ["chromium"] };
  const executablePath = await findOrThrow(required, (step) => process.stderr.write(`${step}\n`));
  return chromium.launch({ executablePath, args: FLAGS });
}

/** Returns axe's serious and critical findings by some of its rules. Default: all rules. */
export async function seriousFaults(
  page: Page,
  rules?: readonly string[],
): Promise<readonly string[]> {
  // The page's own policy forbids foreign scripts, and an evaluation passes it by.
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(
    (options) => (globalThis as unknown as { axe: typeof axe }).axe.run(options),
    rules ? { runOnly: [...rules] } : {},
  );
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}
