import { expect, test } from "vitest";
import type { ComparedStore } from "../../functions/oversell/compare/compare.ts";
import { cli } from "../support/cli.ts";
import { needServers } from "../support/missing.ts";
import { temporaryFile } from "../support/under-test.ts";

/** The URL of a store that does not answer, with a password that nothing prints. */
const CLOSED = "redis://:secret@127.0.0.1:1";

test("a comparison shows what takes a lock from its holder: a crash, a clock and full memory in Redis, a clock in PostgreSQL, nothing in etcd; a store that fails is one row", async () => {
  await needServers("redis", "etcd", "postgres");
  const { file, remove } = await temporaryFile();
  const { status, stdout, stderr } = await cli(
    ...["oversell", "--json", "--compare", "redis", CLOSED, "etcd", `sqlite:${file}`, "postgres"],
  );
  expect(stderr).toBe("");
  expect(status).toBe(69);
  const { stores, ...origin } = JSON.parse(stdout);
  expect(origin).toMatchObject({
    command: `lockstep oversell --json --compare redis redis://127.0.0.1:1 etcd sqlite:${file} postgres`,
    "Node.js": process.versions.node,
  });
  const [redis, closed, etcd, sqlite, postgres] = stores as readonly ComparedStore[];
  expect(closed).toEqual({
    store: "redis://127.0.0.1:1",
    breaks: {},
    failed: expect.stringContaining("127.0.0.1:1"),
  });
  const number = expect.any(Number);
  const handedOver = { median: number, slowest: number, inOrder: number, waiters: 40 };
  const version = expect.stringMatching(/^\d+\.\d/);
  // On a busy machine, the holder has learnt of the loss by then.
  const taken = expect.stringMatching(/^(?:two|lost)$/);
  const broken = { crash: taken, clock: taken, memory: taken };
  expect(redis).toEqual({ store: "redis", version, ...handedOver, breaks: broken });
  expect(etcd).toEqual({
    ...{ store: "etcd", version, ...handedOver },
    ...{ inOrder: 40, breaks: { crash: "held" } },
  });
  expect(sqlite).toEqual({ store: `sqlite:${file}`, ...handedOver, breaks: {} });
  const kept = { crash: "held", clock: taken };
  expect(postgres).toEqual({ store: "postgres", version, ...handedOver, breaks: kept });
  await remove();
}, 300_000);

test("a comparison refuses the options of the incident, and a store that is neither a name nor a URL", async () => {
  const calls = [["--story"], ["--scenario", "failover"], ["nonsense"], ["redis://"]];
  const ended = await Promise.all(
    calls.map((more) => cli("oversell", "--compare", "sqlite", ...more)),
  );
  expect(ended.map(({ status }) => status)).toEqual([64, 64, 64, 64]);
  expect(ended[2]?.stderr).toContain("nonsense");
}, 120_000);
