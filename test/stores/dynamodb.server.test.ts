import { describeElections, describeLostProclamations } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { dynamodbUnderTest } from "../support/under-test.ts";

describeLockStore("dynamodb", dynamodbUnderTest);
describeElections("dynamodb", dynamodbUnderTest);
describeLostProclamations("dynamodb", dynamodbUnderTest);
