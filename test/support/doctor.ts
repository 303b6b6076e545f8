import { examine } from "../../functions/doctor/doctor.ts";
import type { Finding } from "../../functions/doctor/finding.ts";
import { open } from "../../infra/open.ts";

/** Resolves to all findings of `lockstep doctor` on the store of a URL. */
export async function findingsOf(url: string): Promise<readonly Finding[]> {
  await using store = await open(url, { create: false });
  const findings: Finding[] = [];
  for await (const finding of examine(store, url)) findings.push(finding);
  return findings;
}
