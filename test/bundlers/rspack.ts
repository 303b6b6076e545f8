import { rspack } from "@rspack/core";
import { packInto } from "./pack.ts";

export const bundle = packInto((options, done) => rspack(options, done));
