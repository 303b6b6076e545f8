import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { lockedFetch } from "../../functions/edge/index.ts";
import { lazy, lockedHandler } from "../../functions/lambda/index.ts";
import { open } from "../../infra/open.ts";
import { within } from "../support/until.ts";

/** Longer than a function takes whose deadline is in 3 s, shorter than the 10 s of a call without a bound. */
const LATE = 8_000;

const sockets = new Set<Socket>();
let server: Server;
let at = "";

/** Takes connections and never answers. */
beforeAll(async () => {
  server = createServer((socket) => sockets.add(socket.on("error", () => {})));
  await once(server.listen(0, "127.0.0.1"), "listening");
  at = `127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterAll(() => {
  for (const socket of sockets) socket.destroy();
  server.close();
});

describe.concurrent("a function with a lock on a server that never answers", () => {
  const urls = {
    mysql: () => `mysql://root@${at}/shop`,
    redis: () => `redis://${at}`,
    etcd: () => `etcd://${at}`,
    zookeeper: () => `zookeeper://${at}`,
  };
  const kinds = Object.keys(urls) as (keyof typeof urls)[];

  test.for(kinds.flatMap((kind) => [[kind, 0] as const, [kind, 60_000] as const]))(
    "answers in time on Lambda: %s, wait %s",
    async ([kind, wait]) => {
      const opened = lazy(() => open(urls[kind]()));
      // The client's modules are loaded before the clock starts.
      await opened();
      const locks = async () => (await opened()).locks;
      const handler = lockedHandler(locks, { name: "a", wait, reserve: 500 }, async () => "done");
      const endsAt = Date.now() + 3_000;
      const context = { getRemainingTimeInMillis: () => endsAt - Date.now() };
      await expect(within(LATE, handler({}, context))).rejects.toMatchObject({
        code: expect.stringMatching(/^(STORE_UNAVAILABLE|UNKNOWN_OUTCOME|LOCK_TIMEOUT)$/),
      });
      await (await opened()).close();
    },
  );

  test.for([0, 60_000])("responds in time at the edge: wait %s", async (wait) => {
    const options = { etcd: { endpoints: [at] }, name: "a", wait, timeout: 3_000 };
    const handler = lockedFetch(options, async () => new Response("done"));
    const response = await within(LATE, handler(new Request("https://shop.test/"), {}));
    expect([423, 503]).toContain(response.status);
  });
});
