import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundle } from "../../../infra/aws/bundle.ts";

/** A folder with test/scripts/handlers.ts as index.js, bundled as it would be deployed. */
export async function bundledHandlers(): Promise<{ readonly folder: string } & AsyncDisposable> {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-handlers-"));
  await bundle(fileURLToPath(new URL("../../scripts/handlers.ts", import.meta.url)), folder);
  const remove = () => rm(folder, { recursive: true, force: true });
  return { folder, [Symbol.asyncDispose]: remove };
}
