import { once } from "node:events";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import type { Redis } from "../../core/stores/redis/client/redis.ts";
import { until } from "./until.ts";

/** A line of MONITOR: time, client, and each word in quotes. */
const LINE = /^\+[\d.]+ \[\d+ (\S+)\] (.*)$/;
const WORD = /"((?:[^"\\]|\\.)*)"/g;

/**
 * Records all commands that clients send to a server from now on, without those of scripts.
 *
 * Uses a bare socket: ioredis mistakes lines that come together with the first answer for answers.
 */
export async function monitor(redis: Redis, port: number) {
  const socket = connect(port, "127.0.0.1");
  const heard: string[][] = [];
  createInterface({ input: socket }).on("line", (line) => {
    const [, source, words = ""] = LINE.exec(line) ?? [];
    if (source === undefined || source === "lua") return;
    heard.push([...words.matchAll(WORD)].map(([, word = ""]) => word));
  });
  socket.write("MONITOR\r\n");
  await once(socket, "data");
  return {
    /** Returns all commands that were sent before this call. */
    async heard(): Promise<readonly (readonly string[])[]> {
      await redis.call(["ECHO", "end"]);
      await until(() => heard.some(([name]) => name === "ECHO"));
      return heard;
    },
    [Symbol.dispose]: () => void socket.destroy(),
  };
}
