import { expect, test } from "vitest";
import { shownCommand } from "../../infra/command-line.ts";

test.each([
  [["node", "/srv/app/worker.js", "eu"], "worker.js eu"],
  [["node", "/app/functions/cli/main.ts", "lock", "job", "--ttl", "9s"], "lockstep lock job …"],
  [
    ["node", "/x/functions/cli/main.js", "lock", "job", "--", "mysql", "-psecret", "shop"],
    "lockstep lock job -- mysql …",
  ],
  [["node", "job.js", "--token", "secret"], "job.js …"],
  [["node", "job.js", "mysql://me:secret@db/shop"], "job.js mysql://db/shop"],
  [["node", "job.js", "postgres://db/shop?password=secret"], "job.js postgres://db/shop?…"],
  [["node", "job.js", "https://shop/x?token=secret#top"], "job.js https://shop/x?…"],
  [["node", "job.js", "--", "env", "TOKEN=secret", "run"], "job.js -- env TOKEN=… run"],
  [["node"], "node"],
])("the command of %j is shown without secrets", (argv, shown) => {
  expect(shownCommand(argv)).toBe(shown);
});

test("a long command is cut", () => {
  expect(shownCommand(["node", "job.js", "x".repeat(10_000)])).toHaveLength(200);
});
