import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { inspect, promisify } from "node:util";
import { afterEach, describe, expect, test } from "vitest";
import { openRedis } from "../../core/redis/ioredis.ts";
import { type Redis, type RedisOptions, script } from "../../core/redis/redis.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { startServer } from "../../infra/servers/start.ts";
import { anyPrefix, openLocal, redisServer, wireToRedis } from "../support/redis-under-test.ts";
import { runScript } from "../support/script.ts";
import { pause, until, within } from "../support/until.ts";

const COUNT = script("return redis.call('INCR', KEYS[1])");
const READ = script("return redis.call('GET', KEYS[1])", { reads: true });

const opened: Redis[] = [];

function open(options?: Partial<RedisOptions>): Redis {
  const redis = openLocal(options);
  opened.push(redis);
  return redis;
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((redis) => redis.close()));
});

describe("a script", () => {
  test("runs on a server that has forgotten it", async () => {
    await using server = await startServer("redis");
    const redis = open({ port: Number(new URL(server.url).port) });
    const keys = ["a"];
    expect(await redis.run(COUNT, { keys })).toBe("1");
    expect(await redis.run(COUNT, { keys })).toBe("2");
    await redis.call(["SCRIPT", "FLUSH"]);
    expect(await redis.run(COUNT, { keys })).toBe("3");
    const [node] = server.nodes;
    await node?.kill("SIGKILL");
    await expect(redis.run(COUNT, { keys })).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await node?.start();
    expect(await redis.run(COUNT, { keys })).toBe("1");
  });

  test("is sent by its text once, and by its hash from then on", async () => {
    await using server = await startServer("redis");
    const redis = open({ port: Number(new URL(server.url).port) });
    for (let i = 0; i < 10; i += 1) await redis.run(COUNT, { keys: ["a"] });
    const stats = String(await redis.call(["INFO", "commandstats"]));
    expect(stats).toMatch(/cmdstat_eval:calls=1,/);
    expect(stats).toMatch(/cmdstat_evalsha:calls=10,/);
  });

  test("answers with integers of 64 bits as text, and with nothing for nil", async () => {
    const redis = open();
    const key = anyPrefix();
    await redis.call(["SET", key, "9223372036854775806"]);
    expect(await redis.call(["INCR", key])).toBe("9223372036854775807");
    const answer = script("return {KEYS[1], false, {1, ARGV[1]}}");
    expect(await redis.run(answer, { keys: [key], args: [7] })).toEqual([
      key,
      undefined,
      ["1", "7"],
    ]);
    await redis.call(["DEL", key]);
  });
});

describe("a lost answer", () => {
  test("to what may write is of unknown outcome, and to what reads is none; nothing is sent twice", async () => {
    await using wire = await wireToRedis();
    const redis = open({ port: wire.port });
    const keys = [anyPrefix()];
    await redis.run(COUNT, { keys });
    for (const ask of [
      () => redis.run(COUNT, { keys }),
      () => redis.call(["INCR", ...keys]),
      () => redis.runOnReplicas(COUNT, { keys }, { count: 1, span: 1 }),
    ]) {
      wire.loseNextAnswer();
      await expect(ask()).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
      await redis.call(["PING"]);
    }
    for (const ask of [
      () => redis.run(READ, { keys }),
      () => redis.call(["GET", ...keys], { reads: true }),
    ]) {
      await redis.call(["PING"]);
      wire.loseNextAnswer();
      await expect(ask()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    }
    expect(await redis.run(READ, { keys })).toBe("4");
  });

  test("that the caller did not wait for is of unknown outcome, and the next one is not taken for it", async () => {
    await using wire = await wireToRedis();
    const redis = open({ port: wire.port });
    const keys = [anyPrefix()];
    await redis.run(COUNT, { keys });
    const given = new AbortController();
    const call = redis.run(COUNT, { keys, signal: given.signal });
    given.abort("enough");
    await expect(call).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME", cause: "enough" });
    const late = redis.run(COUNT, { keys, signal: given.signal });
    await expect(late).rejects.toMatchObject({ code: "STORE_UNAVAILABLE", cause: "enough" });
    expect(await redis.run(READ, { keys })).toBe("2");
    expect(wire.connections).toBe(1);
  });

  test("of a server that has fallen silent ends the connection, and the next call makes another", async () => {
    await using wire = await wireToRedis();
    const redis = open({ port: wire.port, timeout: 500 });
    await redis.call(["PING"]);
    wire.cut();
    await expect(redis.call(["PING"])).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    await expect(within(3_000, redis.call(["PING"]))).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    wire.mend();
    expect(await redis.call(["PING"])).toBe("PONG");
  });
});

describe("a server that cannot be used", () => {
  const CANARY = "canary-7f3a";

  const failureOf = async (options: Partial<RedisOptions>) => {
    const error = await open(options)
      .run(COUNT, { keys: ["a"] })
      .then(
        () => undefined,
        (reason: unknown) => reason,
      );
    const shown = inspect(error, { depth: 10, showHidden: true }) + JSON.stringify(error);
    expect(shown).not.toContain(CANARY);
    return error;
  };

  test("because nobody listens, or a password is wrong, is told at once, and asked once", async () => {
    expect(await failureOf({ port: await freePort() })).toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    await using wire = await wireToRedis();
    const login = { port: wire.port, user: "nobody", password: CANARY };
    expect(await failureOf(login)).toMatchObject({ code: "STORE_REFUSED", retryable: false });
    expect(wire.connections).toBe(1);
  });

  test("because it has no such database is told, and another one is not used", async () => {
    expect(await failureOf({ database: 1_000_000 })).toMatchObject({ code: "STORE_REFUSED" });
  });

  test("because it is a replica is left, and its name is asked for again", async () => {
    const [, port = 0] = redisServer("redis-replica").ports;
    const redis = open({ port });
    const id = await redis.call(["CLIENT", "ID"]);
    const failure = { code: "STORE_UNAVAILABLE", message: expect.stringContaining("replica") };
    await expect(redis.run(COUNT, { keys: ["a"] })).rejects.toMatchObject(failure);
    expect(await redis.call(["CLIENT", "ID"])).not.toBe(id);
  });

  test("because the user may not is told", async () => {
    const admin = open();
    const user = anyPrefix();
    await admin.call([
      "ACL",
      "SETUSER",
      user,
      "on",
      ">word",
      "~*",
      "&*",
      "+@read",
      "+evalsha",
      "+eval",
    ]);
    expect(await failureOf({ user, password: "word" })).toMatchObject({ code: "STORE_REFUSED" });
    const allowed = open({ user, password: "word" });
    expect(await allowed.run(READ, { keys: ["no such key"] })).toBeUndefined();
    await admin.call(["ACL", "DELUSER", user]);
  });

  test("for now is told so: a replica without its primary, too few replicas, too many clients, a script that runs", async () => {
    await using server = await startServer("redis");
    const port = Number(new URL(server.url).port);
    const redis = open({ port });
    const set = (name: string, value: string | number) =>
      redis.call(["CONFIG", "SET", name, value]);
    const passing = (text: string) => ({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining(text),
    });
    const keys = ["a"];
    await set("min-replicas-to-write", 1);
    await expect(redis.run(COUNT, { keys })).rejects.toMatchObject(passing("replicas"));
    await set("min-replicas-to-write", 0);
    await set("replica-serve-stale-data", "no");
    await redis.call(["REPLICAOF", "127.0.0.1", await freePort()]);
    await expect(redis.run(READ, { keys })).rejects.toMatchObject(passing("without its primary"));
    await redis.call(["REPLICAOF", "NO", "ONE"]);
    await set("busy-reply-threshold", 1);
    const other = open({ port });
    const endless = other.run(script("while true do end"), { keys: [] });
    const outcome = expect(endless).rejects.toMatchObject({ code: "STORE_REFUSED" });
    await pause(50);
    await expect(redis.run(COUNT, { keys })).rejects.toMatchObject(passing("busy"));
    await redis.call(["SCRIPT", "KILL"]);
    await outcome;
    await set("maxclients", 2);
    // Its answer may be overtaken by the end of the connection.
    expect(await failureOf({ port })).toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(await redis.run(READ, { keys })).toBeUndefined();
  });

  test("because options are wrong is told before anything is sent", () => {
    for (const wrong of [{ port: 0 }, { database: -1 }, { host: "" }, { timeout: 0 }]) {
      expect(() => openRedis({ host: "127.0.0.1", ...wrong })).toThrow(RangeError);
    }
  });
});

test("a database is used by its number, and a connection has a name", async () => {
  const info = String(await open({ database: 3 }).call(["CLIENT", "INFO"]));
  expect(info).toMatch(/ db=3 /);
  expect(info).toMatch(/ name=lockstep /);
});

test("a host name that stands for several addresses is tried at each of them", async () => {
  expect(await open({ host: "localhost" }).call(["PING"])).toBe("PONG");
});

describe("a subscription", () => {
  test("hears what is published, and stands anew after its connection was killed, or its server has become a replica", async () => {
    await using server = await startServer("redis");
    const redis = open({ port: Number(new URL(server.url).port) });
    const channel = "a";
    let stood = 0;
    const heard: string[] = [];
    const stop = redis.subscribe(channel, {
      ready: () => {
        stood += 1;
      },
      message: (text) => heard.push(text),
    });
    await until(() => stood === 1);
    expect(await redis.call(["PUBLISH", channel, "one"])).toBe("1");
    await until(() => heard.length === 1);
    await redis.call(["CLIENT", "KILL", "TYPE", "pubsub"]);
    await until(() => stood === 2);
    await redis.call(["REPLICAOF", "127.0.0.1", await freePort()]);
    await expect(redis.call(["SET", "a", 1])).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await until(() => stood === 3);
    await redis.call(["PUBLISH", channel, "two"]);
    await until(() => heard.length === 2);
    expect(heard).toEqual(["one", "two"]);
    stop();
    await until(async () => (await redis.call(["PUBLISH", channel, "three"])) === "0");
    expect(heard).toEqual(["one", "two"]);
  });
});

describe("closing", () => {
  test("ends what is under way, and nothing can be asked for any more", async () => {
    await using server = await startServer("redis");
    const redis = open({ port: Number(new URL(server.url).port) });
    await redis.call(["PING"]);
    await server.nodes[0]?.kill("SIGSTOP");
    const calls = [redis.call(["PING"]), redis.call(["PING"], { reads: true })];
    const outcomes = Promise.allSettled(calls);
    await pause(20);
    await redis.close();
    expect(await within(1_500, outcomes)).toMatchObject([
      { reason: { code: "UNKNOWN_OUTCOME" } },
      { reason: { code: "STORE_CLOSED" } },
    ]);
    await expect(redis.call(["PING"])).rejects.toMatchObject({ code: "STORE_CLOSED" });
    expect(() => redis.subscribe("a", { ready() {}, message() {} })).toThrow();
    await redis.close();
  });

  test("lets the process end, also beside servers that are away, or do not answer; nothing is printed", async () => {
    await using server = await startServer("redis");
    const [node] = server.nodes;
    const port = new URL(server.url).port;
    const away = String(await freePort());
    const path = fileURLToPath(new URL("../scripts/redis-once.ts", import.meta.url));
    const ended = promisify(execFile)(process.execPath, [path, port, away], { timeout: 20_000 });
    await pause(10);
    expect(await ended).toEqual({ stdout: "begun\nclosed\n", stderr: "" });
    using run = runScript("redis-once", port);
    expect(await run.line()).toBe("begun");
    await node?.kill("SIGSTOP");
    expect(await run.line()).toBe("closed");
    expect(await within(1_500, run.ended)).toBe(0);
  });
});
