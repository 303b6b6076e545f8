import { describe } from "vitest";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { redlockUnderTest, type StoreUnderTest } from "../support/under-test.ts";
import { pause } from "../support/until.ts";

describe("while one of five masters is killed, and then another", () => {
  let started: Promise<Server> | undefined;

  /** All stores of the suite use the same masters. */
  const make = async (): Promise<StoreUnderTest> => {
    const isFirst = started === undefined;
    started ??= startServer("redlock");
    const server = await started;
    const store = await redlockUnderTest(server.nodes.map(({ config }) => config.port));
    if (!isFirst) return store;
    void killSome(server);
    return {
      ...store,
      async close() {
        await store.close();
        await server.stop();
      },
    };
  };

  const killSome = async ({ nodes }: Server) => {
    for (const [node, millis] of [
      [nodes[1], 1_000],
      [nodes[3], 4_000],
    ] as const) {
      await pause(millis);
      await node?.kill("SIGKILL");
    }
  };

  describeLockStore("redlock", make);
});
