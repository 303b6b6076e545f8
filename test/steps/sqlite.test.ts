import { describeSteps } from "../conformance/steps.ts";
import { describeTransactedSteps } from "../conformance/transacted-steps.ts";
import { sqliteSteps } from "../support/steps-under-test.ts";

describeSteps("sqlite", sqliteSteps);
describeTransactedSteps("sqlite", sqliteSteps);
