import type { Argv } from "yargs";
import type { StoreArgs } from "./options.ts";
import type { CallArgs } from "./runtime.ts";

/** The arguments of a command that reads one run. */
export interface IdArgs extends StoreArgs {
  readonly id: string;
}

/** The arguments of a command that calls one run. */
export interface CallIdArgs extends CallArgs {
  readonly id: string;
}

/** Declares the positional argument `id`. */
export function idPositional<T>(yargs: Argv<T>) {
  return yargs.positional("id", {
    type: "string",
    demandOption: true,
    describe: "the run's id",
  });
}
