import { writeFileSync } from "node:fs";
import { scorecardPage } from "./page.ts";
import { readResults } from "./results.ts";

/** Writes the page anew from the results, and returns it. */
export function writeScorecard(): string {
  const page = scorecardPage(readResults());
  writeFileSync(new URL("../../docs/scorecard.md", import.meta.url), page);
  return page;
}
