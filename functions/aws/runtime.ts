import type { Runtime } from "../../core/steps/contract.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { lazy } from "../invocation/provider.ts";
import { services } from "./services.ts";
import { placeOrderFrom, stockReportFrom } from "./workflows.ts";

const inventory = async () => (await services()).inventory;

export const placeOrder = placeOrderFrom(inventory);
export const stockReport = stockReportFrom(inventory);

/** The runtime of the functions that execute runs. */
export const runtime: () => Promise<Runtime> = lazy(async () => {
  const { journal, locks, telemetry } = await services();
  const workflows = [placeOrder, stockReport];
  const owner = ownerOf(process.env);
  return createRuntime({ journal, locks, workflows, owner, ...telemetry.runtime });
});

function ownerOf({
  AWS_LAMBDA_FUNCTION_NAME = "function",
  AWS_LAMBDA_LOG_STREAM_NAME = "",
}): string {
  return `${AWS_LAMBDA_FUNCTION_NAME}/${AWS_LAMBDA_LOG_STREAM_NAME}`.slice(0, 200);
}
