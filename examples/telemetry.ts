import { openSqlite } from "lockstep/sqlite";
import { createRuntime } from "lockstep/steps";
import { openTelemetry } from "lockstep/telemetry";

const telemetry = openTelemetry(); // uses the SDK that the program registers; without an SDK, nothing happens
await using shop = await openSqlite("shop.db", {
  onEvent: telemetry.lock,
  onStockEvent: telemetry.stock,
});
const runtime = createRuntime({ ...shop, ...telemetry.runtime });

await shop.inventory.set({ sku: "cup", quantity: 5, operationId: "count-1" });
const answer = await shop.inventory.decrement({
  sku: "cup",
  quantity: 1_000,
  operationId: "order-9",
});
console.log(answer.outcome, runtime.workflows.length); // sold-out 0
