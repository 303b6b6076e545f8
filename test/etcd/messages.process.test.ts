import { cp, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { run } from "../../infra/servers/processes.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const client = "core/stores/etcd/client";

test("messages.ts is what npm run messages makes of messages.proto", async () => {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-messages-"));
  try {
    for (const file of ["messages.proto", "buf.gen.yaml"]) {
      await cp(join(root, client, file), join(folder, file));
    }
    const bin = join(root, "node_modules/.bin");
    const env = { ...process.env, PATH: `${bin}:${process.env.PATH}` };
    await run("buf", ["generate", "."], { cwd: folder, env });
    const made = await readFile(join(folder, "messages.ts"), "utf8");
    expect(await readFile(join(root, client, "messages.ts"), "utf8")).toBe(made);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
