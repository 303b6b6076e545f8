import { join } from "node:path";
import type { FunctionOptions } from "./environment.ts";

const { LOCKSTEP_TEST_RIC: ric } = process.env;

/** The runtime clients that run a handler: ours, and AWS's own if LOCKSTEP_TEST_RIC names its folder. */
export const CLIENTS: Readonly<Record<string, Pick<FunctionOptions, "command">>> = {
  "our runtime client": {},
  ...(ric && { "aws-lambda-ric": { command: [process.execPath, join(ric, "index.mjs")] } }),
};
