import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { until } from "../support/until.ts";

const MOUNTS_AND_WAITS = `
  const { SmallDisk } = await import(${JSON.stringify(new URL("./small-disk.ts", import.meta.url))});
  const disk = await SmallDisk.mount();
  console.log(disk?.path ?? "");
  setInterval(() => {}, 1_000);
`;

test("a disk of a campaign is unmounted and removed when its process is killed", async ({
  skip,
}) => {
  const args = ["--input-type=module", "--eval", MOUNTS_AND_WAITS];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const [output] = await once(child.stdout, "data");
  const path = String(output).trim();
  child.kill("SIGKILL");
  if (path === "") skip("only root may mount a disk");
  expect(path).toContain("lockstep-disk-");
  await until(() => !existsSync(path));
});
