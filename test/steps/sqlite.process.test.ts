import { describeStepTransactions } from "../conformance/steps/transactions.ts";
import { describeSteps } from "../conformance/steps.ts";
import { sqliteSteps } from "../support/steps-under-test.ts";

describeSteps("sqlite", sqliteSteps);
describeStepTransactions("sqlite", sqliteSteps);
