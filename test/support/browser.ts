import { chromium } from "playwright-core";
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
