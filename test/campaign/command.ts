import { setTimeout as sleep } from "node:timers/promises";
import { record } from "./history.ts";
import { askOracle } from "./oracle.ts";

/** command ORACLE CLIENT MILLIS: the command of `lockstep lock`, which makes one read-modify-write. Prints its history. */
const [oracle = "", client = "", millis = ""] = process.argv.slice(2);
const { LOCKSTEP_NAME: name = "", LOCKSTEP_FENCE: token = "" } = process.env;
const at = { client, name, token };
record({ ...at, operation: "acquire", type: "ok" });
const found = await use("claim");
await sleep(Number(millis));
if (found !== undefined) await use("write", found + 1);

async function use(operation: "claim" | "write", value?: number): Promise<number | undefined> {
  const request = { ...at, ...(value !== undefined && { value }) };
  record({ ...request, operation, type: "invoke" });
  const answer = await askOracle(oracle, request);
  const isRefused = answer.value === undefined;
  const end = isRefused
    ? ({ type: "fail", code: "FENCED_OUT" } as const)
    : { ...answer, type: "ok" as const };
  record({ ...request, operation, ...end });
  return answer.value;
}
