import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { expect, test, vi } from "vitest";
import { nextTurn } from "../../core/lock/event-loop.ts";
import { Silence } from "../../core/stores/redis/client/silence.ts";

const ANSWERS_AFTER_50_MS = `
  const { parentPort } = require("node:worker_threads");
  parentPort.on("message", (text) => setTimeout(() => parentPort.postMessage(text), 50));
`;

test("a connection whose answer arrived while this process was busy is not silent", async () => {
  const onSilence = vi.fn();
  const silence = new Silence(200, onSilence);
  const server = new Worker(ANSWERS_AFTER_50_MS, { eval: true });
  await once(server, "online");
  const answer = once(server, "message").then(() => silence.heard());
  server.postMessage(1);
  const waiting = silence.until(answer);
  // After a turn, timers come before data that have arrived.
  await nextTurn();
  const end = performance.now() + 600;
  while (performance.now() < end);
  await waiting;
  await server.terminate();
  expect(onSilence).not.toHaveBeenCalled();
});

test("a connection is silent when no data arrive for the timeout while an answer is due", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const silence = new Silence(30, resolve);
  void silence.until(new Promise(() => {}));
  // The timer of a silence does not keep a process alive.
  const alive = setInterval(() => {}, 1_000);
  await promise;
  clearInterval(alive);
});
