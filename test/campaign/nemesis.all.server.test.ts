import { expect, test } from "vitest";
import { startServer } from "../../infra/servers/start.ts";
import { Random } from "../simulation/random.ts";
import { until } from "../support/until.ts";
import { History } from "./history.ts";
import { createNemesis, FAULTS, type StoreFaults } from "./nemesis.ts";

test("a server that has ended by itself is started again, and meets no fault before", async () => {
  await using server = await startServer("redis", { args: ["--appendonly", "yes"] });
  const [node] = server.nodes;
  if (!node) throw new Error("the server has no process");
  const none = Object.fromEntries(FAULTS.map((name) => [name, "not here"])) as StoreFaults;
  const history = new History();
  const nemesis = createNemesis({
    ...{ wires: [], nodes: server.nodes, contenders: [], commands: [] },
    ...{ faults: { ...none, wires: "no wires" }, stopSignal: "SIGTERM" },
    ...{ history, random: new Random(1), ttl: 100 },
  });
  process.kill(node.pid, "SIGKILL");
  await until(() => node.hasEnded);
  const ended = new AbortController();
  const running = nemesis.run(ended.signal);
  await until(() => nemesis.serversEnded === 1 && !node.hasEnded);
  ended.abort();
  await running;
  expect(nemesis.serversEnded).toBe(1);
  expect(history.events.slice(0, 2)).toMatchObject([
    { client: "nemesis", operation: "start of an ended server", type: "invoke" },
    { client: "nemesis", operation: "start of an ended server", type: "ok" },
  ]);
});
