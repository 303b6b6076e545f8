import { expect, test } from "vitest";
import type { ComparedStore } from "../../functions/oversell/compare/compare.ts";
import { cli } from "../support/cli.ts";
import { needServers } from "../support/missing.ts";
import { temporaryFile } from "../support/under-test.ts";

test("a comparison shows that a crash, a clock and full memory take a lock in Redis from its holder, and not one in etcd", async () => {
  await needServers("redis");
  await needServers("etcd");
  const { file, remove } = await temporaryFile();
  const { status, stdout, stderr } = await cli(
    ...["oversell", "--json", "--compare", "redis", "etcd", `sqlite:${file}`],
  );
  expect(stderr).toBe("");
  expect(status).toBe(0);
  const [redis, etcd, sqlite] = JSON.parse(stdout) as readonly ComparedStore[];
  const handedOver = { median: expect.any(Number), slowest: expect.any(Number), waiters: 40 };
  expect(redis).toMatchObject({ store: "redis", ...handedOver });
  // On a busy machine, the holder has learnt of the loss by then.
  const taken = expect.stringMatching(/^(?:two|lost)$/);
  expect(redis?.breaks).toEqual({ crash: taken, clock: taken, memory: taken });
  expect(etcd).toMatchObject({ store: "etcd", ...handedOver, inOrder: 40 });
  expect(etcd?.breaks).toEqual({ crash: "held" });
  expect(sqlite).toMatchObject({ store: `sqlite:${file}`, ...handedOver, breaks: {} });
  await remove();
}, 300_000);

test("a comparison refuses the options of the incident, and a store that is neither a name nor a URL", async () => {
  const calls = [["--story"], ["--scenario", "failover"], ["nonsense"]];
  const ended = await Promise.all(
    calls.map((more) => cli("oversell", "--compare", "sqlite", ...more)),
  );
  expect(ended.map(({ status }) => status)).toEqual([64, 64, 64]);
  expect(ended[2]?.stderr).toContain("nonsense");
}, 120_000);
