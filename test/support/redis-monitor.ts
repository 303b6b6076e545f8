import { once } from "node:events";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import type { Redis } from "../../core/redis/redis.ts";
import { until } from "./until.ts";

/** A line of MONITOR: when, from where, and each word in quotes. */
const LINE = /^\+[\d.]+ \[\d+ (\S+)\] (.*)$/;
const WORD = /"((?:[^"\\]|\\.)*)"/g;

/**
 * Hears all commands that clients send to a server from now on, but not what scripts do.
 *
 * Over a bare socket: ioredis takes what is heard for answers when it comes together with the first one.
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
    /** All that was sent before this call. */
    async heard(): Promise<readonly (readonly string[])[]> {
      await redis.call(["ECHO", "that is all"]);
      await until(() => heard.some(([name]) => name === "ECHO"));
      return heard;
    },
    [Symbol.dispose]: () => void socket.destroy(),
  };
}
