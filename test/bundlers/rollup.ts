import commonjs from "@rollup/plugin-commonjs";
import json from "@rollup/plugin-json";
import { nodeResolve } from "@rollup/plugin-node-resolve";
import terser from "@rollup/plugin-terser";
import { rollup } from "rollup";
import type { Bundle } from "../support/bundlers.ts";

/** Rollup reads packages, CommonJS and JSON with plugins. */
export const bundle: Bundle = async ({ entry, file, format }) => {
  const made = await rollup({
    input: entry,
    logLevel: "silent",
    plugins: [nodeResolve({ preferBuiltins: true }), commonjs(), json()],
  });
  await made.write({
    file,
    format,
    // One file, as the other bundlers make it.
    inlineDynamicImports: true,
    plugins: [terser()],
  });
};
