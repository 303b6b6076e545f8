import { expect, test } from "vitest";
import { pageAt } from "../support/docs.ts";
import { scorecardPage } from "./page.ts";
import { readResults } from "./results.ts";

const results = readResults();

test("the scorecard is made from the results: npm run scorecard", () => {
  expect(results.tests).toBeGreaterThan(1_000);
  expect(pageAt("docs/scorecard.md")).toBe(scorecardPage(results));
});

test("the scorecard tells each violation, and each loss of a peer", () => {
  const { proof, peers } = results;
  const campaigns = proof.campaigns.map((report) => ({
    ...report,
    verdict: "failed" as const,
    violations: ["validity: two holders"] as const,
  }));
  const broken = scorecardPage({ ...results, proof: { ...proof, campaigns } });
  expect(broken).toContain(`**${campaigns.length} violations**`);
  expect(broken).toContain("broke a guarantee");
  const runs = peers.runs.map((run) => ({
    ...run,
    services: run.services.map((service) => ({
      ...service,
      outcomes: service.outcomes.map((outcome) => ({ ...outcome, lost: 1 })),
    })),
  }));
  const crashed = scorecardPage(results).match(/\| DBOS, a transaction .*/)?.[0];
  expect(crashed).toMatch(/\| 0 of 7 \| {2}\| cut off \|$/);
  const service = results.peers.runs.at(-1)?.services.at(-1);
  const faults = service?.outcomes.length;
  const losing = scorecardPage({ ...results, peers: { runs } });
  expect(losing).toContain(
    `| ${service?.service} | ${service?.package} | **${faults} of ${faults}** |`,
  );
});
