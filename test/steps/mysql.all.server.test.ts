import { inject } from "vitest";
import { describeStepTransactions } from "../conformance/steps/transactions.ts";
import { describeSteps } from "../conformance/steps.ts";
import { sqlServerSteps } from "../support/steps-under-test.ts";

for (const server of inject("sqlServers")) {
  describeSteps(server.name, () => sqlServerSteps(server));
  describeStepTransactions(server.name, () => sqlServerSteps(server));
}
