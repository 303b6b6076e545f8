import webpack from "webpack";
import { packInto } from "./pack.ts";

export const bundle = packInto((options, done) =>
  webpack({ ...options, experiments: { outputModule: options.output.module } }, done),
);
