import { describeLockStore } from "../conformance/lock-store.ts";
import { dynamodbUnderTest } from "../support/under-test.ts";

describeLockStore("dynamodb", dynamodbUnderTest);
