import { openDynamodb } from "lockstep/dynamodb";
import { lazy } from "lockstep/lambda";
import { telemetry } from "./telemetry.ts";

/**
 * TABLE is the name of the table. Lambda sets AWS_REGION and the keys of the function's role. AWS_ENDPOINT_URL_DYNAMODB names
 * another server: see compose.yaml.
 */
const { AWS_REGION = "", TABLE = "", AWS_ENDPOINT_URL_DYNAMODB } = process.env;

const table = {
  region: AWS_REGION,
  table: TABLE,
  ...(AWS_ENDPOINT_URL_DYNAMODB && { endpoint: AWS_ENDPOINT_URL_DYNAMODB }),
};
const hooks = { onEvent: telemetry.lock, onStockEvent: telemetry.stock };

/** Stock, runs and locks. The first event opens the table, later ones find it. */
export const shop = lazy(() => openDynamodb(table, hooks));

export const locks = async () => (await shop()).locks;
