import { basename, dirname } from "node:path";
import type { Bundle, BundleRequest } from "../support/bundlers.ts";

interface Stats {
  hasErrors(): boolean;
  toString(options: object): string;
}

/** The interface that webpack and Rspack share. */
type Pack = (
  options: Options,
  done: (error: Error | null, stats: Stats | undefined) => void,
) => unknown;

type Options = ReturnType<typeof packOptions>;

function packOptions({ entry, file, format }: BundleRequest) {
  return {
    mode: "production" as const,
    target: "node" as const,
    entry,
    output: { path: dirname(file), filename: basename(file), module: format === "esm" },
  };
}

/** Makes a Bundle of webpack, or of Rspack, whose options are those of webpack. */
export function packInto(pack: Pack): Bundle {
  return (request) =>
    new Promise((resolve, reject) => {
      pack(packOptions(request), (error, stats) => {
        if (!error && !stats?.hasErrors()) resolve();
        else reject(error ?? new Error(stats?.toString({ all: false, errors: true })));
      });
    });
}
