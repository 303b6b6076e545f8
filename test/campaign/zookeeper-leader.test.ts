import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { expect, test } from "vitest";
import { srvr } from "./zookeeper-leader.ts";

test("a question to ZooKeeper ends when its process pauses for longer than it waits", async () => {
  const server = createServer((socket) => socket.end("Node count: 5\n"));
  await once(server.listen(0, "127.0.0.1"), "listening");
  const asked = srvr((server.address() as AddressInfo).port);
  const resumesAt = performance.now() + 1_200;
  while (performance.now() < resumesAt);
  await expect(asked).rejects.toThrow("did not answer");
  server.close();
});
