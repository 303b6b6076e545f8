import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundle } from "./bundle.ts";

/** The functions of serverless.yml, bundled into the folder build. */

const root = fileURLToPath(new URL("../..", import.meta.url));

const FUNCTIONS = ["http", "migrate", "queue", "schedule", "stock", "sweep"];

const modules = FUNCTIONS.map((name) => [name, join(root, `functions/aws/${name}.ts`)]);
await bundle(Object.fromEntries(modules), join(root, "build"));
