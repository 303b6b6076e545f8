import { join } from "node:path";
import type { FunctionOptions } from "./environment.ts";

const { LOCKSTEP_TEST_RIC: ric } = process.env;

/** What runs a handler in an environment: ours, and AWS's own where LOCKSTEP_TEST_RIC says in which folder it is. */
export const CLIENTS: Readonly<Record<string, Pick<FunctionOptions, "command">>> = {
  "our runtime client": {},
  ...(ric && { "aws-lambda-ric": { command: [process.execPath, join(ric, "index.mjs")] } }),
};
