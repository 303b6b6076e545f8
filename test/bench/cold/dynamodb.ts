import { openDynamodb } from "../../../core/stores/dynamodb/index.ts";
import { lazy, lockedHandler } from "../../../functions/lambda/index.ts";

const { DYNAMODB_ENDPOINT = "" } = process.env;

const shop = lazy(() =>
  openDynamodb({ region: "local", table: "cold", endpoint: DYNAMODB_ENDPOINT }),
);

/** A lock in DynamoDB, with the stock and the journal of the store beside it. */
export const handler = lockedHandler(
  async () => (await shop()).locks,
  { name: "report" },
  async (_, lock) => {
    lock.assertHeld();
    return { fence: String(lock.fence) };
  },
);
