import { rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundle } from "./bundle.ts";

/** Bundles each function of serverless.yml into its own folder. A shared bundle would load a third more code. */

const root = fileURLToPath(new URL("../..", import.meta.url));

const FUNCTIONS = ["http", "migrate", "queue", "restock", "schedule", "stock", "sweep"];

await rm(join(root, "build"), { recursive: true, force: true });
for (const name of FUNCTIONS) {
  await bundle(join(root, `functions/aws/${name}.ts`), join(root, "build", name));
}
