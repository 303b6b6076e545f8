import { inject } from "vitest";
import { describeSteps } from "../conformance/steps.ts";
import { describeTransactedSteps } from "../conformance/transacted-steps.ts";
import { mysqlSteps } from "../support/steps-under-test.ts";

for (const server of inject("sqlServers")) {
  describeSteps(server.name, () => mysqlSteps(server));
  describeTransactedSteps(server.name, () => mysqlSteps(server));
}
