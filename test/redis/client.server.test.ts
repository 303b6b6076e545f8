import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { inspect, promisify } from "node:util";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import { type Redis, type RedisOptions, script } from "../../core/stores/redis/client/redis.ts";
import { scan } from "../../core/stores/redis/client/scan.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { startServer } from "../../infra/servers/start.ts";
import { callsOf } from "../support/own-redis.ts";
import { anyPrefix, openLocal, redisServer, wireToRedis } from "../support/redis-under-test.ts";
import { runScript } from "../support/script.ts";
import { pause, until, within } from "../support/until.ts";

const COUNT = script("return redis.call('INCR', KEYS[1])");
const READ = script("return redis.call('GET', KEYS[1])", { reads: true });

const opened: Redis[] = [];

function open(options?: Partial<RedisOptions>): Required<Redis> {
  const redis = openLocal(options);
  opened.push(redis);
  return redis;
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((redis) => redis.close()));
});

describe("a script", () => {
  test("runs on a server that does not know it any more", async () => {
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

  test("is sent as text once, and as a hash from then on", async () => {
    await using server = await startServer("redis");
    const redis = open({ port: Number(new URL(server.url).port) });
    for (let i = 0; i < 10; i += 1) await redis.run(COUNT, { keys: ["a"] });
    const stats = String(await redis.call(["INFO", "commandstats"]));
    expect(stats).toMatch(/cmdstat_eval:calls=1,/);
    expect(stats).toMatch(/cmdstat_evalsha:calls=10,/);
  });

  test("returns 64-bit integers as text, and undefined for nil", async () => {
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
  test("to a write is an unknown outcome, to a read an unavailable store, and no command is sent twice", async () => {
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

  test("that a proxy replaces by its own error is an unknown outcome, and a refusal of the server is not", async () => {
    await using wire = await wireToRedis();
    const redis = open({ port: wire.port });
    const keys = [anyPrefix()];
    await redis.run(COUNT, { keys });
    for (const said of ["ERR Connection timed out", "upstream failure"]) {
      for (const [ask, code] of [
        [() => redis.run(COUNT, { keys }), "UNKNOWN_OUTCOME"],
        [() => redis.call(["INCR", ...keys]), "UNKNOWN_OUTCOME"],
        [() => redis.run(READ, { keys }), "STORE_REFUSED"],
      ] as const) {
        await until(() => redis.call(["PING"]).catch(() => undefined));
        wire.replaceNextAnswer(Buffer.from(`-${said}\r\n`));
        await expect(ask()).rejects.toMatchObject({ code });
      }
    }
    await until(() => redis.call(["PING"]).catch(() => undefined));
    expect(await redis.run(READ, { keys })).toBe("5");
    const failing = script("return redis.call('INCR', KEYS[1], 'too much')");
    const refused = { code: "STORE_REFUSED" };
    await expect(redis.run(failing, { keys })).rejects.toMatchObject(refused);
    await expect(redis.run(script("return ("), { keys })).rejects.toMatchObject(refused);
    await expect(redis.call(["NO-SUCH-COMMAND"])).rejects.toMatchObject(refused);
    await expect(redis.call(["INCR"])).rejects.toMatchObject(refused);
  });

  test("of an aborted command is an unknown outcome, and the next answer is not mistaken for it", async () => {
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

  test("of a silent server ends the connection, and the next command opens another one", async () => {
    await using wire = await wireToRedis();
    const redis = open({ port: wire.port, timeout: 500 });
    await redis.call(["PING"]);
    wire.cut();
    await expect(redis.call(["PING"])).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    await expect(within(8_000, redis.call(["PING"]))).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    wire.mend();
    expect(await redis.call(["PING"])).toBe("PONG");
  });
});

describe("WAIT", () => {
  const replicas = { count: 1, span: 300 };

  test("is sent once for all writes before it: a read does not wait for one after the other", async () => {
    await using server = await startServer("redis");
    const redis = open({ port: Number(new URL(server.url).port), timeout: 20_000 });
    const keys = ["a"];
    expect(await redis.run(COUNT, { keys })).toBe("1");
    const writing = Array.from({ length: 30 }, () =>
      redis.runOnReplicas(COUNT, { keys }, replicas),
    );
    await redis.run(READ, { keys });
    expect((await Promise.all(writing)).map(({ confirmed }) => confirmed)).toEqual(
      writing.map(() => 0),
    );
    expect(await redis.run(READ, { keys })).toBe("31");
    // The first write has one for itself, and the others have one together.
    expect(await callsOf(redis, "wait")).toBe(2);
  });

  test("holds up no read without a signal for longer than ten seconds", async () => {
    await using server = await startServer("redis");
    const redis = open({ port: Number(new URL(server.url).port) });
    for (let i = 0; i < 15; i += 1) redis.call(["WAIT", 1, 1_000]).catch(() => {});
    const failure = { code: "STORE_UNAVAILABLE" };
    await expect(redis.run(READ, { keys: ["a"] })).rejects.toMatchObject(failure);
  });

  test("confirms no write that was sent after it", async () => {
    await using server = await startServer("redis-replica");
    const [primary = 0] = server.nodes.map(({ config }) => config.port);
    const redis = open({ port: primary, timeout: 20_000 });
    const keys = ["a"];
    const write = () => redis.runOnReplicas(COUNT, { keys }, { count: 1, span: 2_000 });
    await until(async () => (await write()).confirmed === 1);
    const before = await callsOf(redis, "wait");
    const both = await Promise.all([write(), write()]);
    expect(both.map(({ confirmed }) => confirmed)).toEqual([1, 1]);
    expect(await callsOf(redis, "wait")).toBe(before + 2);
  });
});

describe("a connection that dies silently", () => {
  test("is used for one command: the next one uses another connection", async () => {
    await using wire = await wireToRedis();
    const redis = open({ port: wire.port, timeout: 60_000 });
    const keys = [anyPrefix()];
    await redis.run(COUNT, { keys });
    wire.blackhole();
    const signal = AbortSignal.timeout(300);
    const asked = [redis.run(COUNT, { keys, signal }), redis.run(COUNT, { keys, signal })];
    for (const { status } of await Promise.allSettled(asked)) expect(status).toBe("rejected");
    expect(await redis.run(COUNT, { keys })).toBe("2");
    expect(wire.connections).toBe(2);
  });

  test("is given up after two seconds, or after the configured timeout", async () => {
    await using wire = await wireToRedis();
    const redis = open({ port: wire.port });
    await redis.call(["PING"]);
    wire.blackhole();
    const asking = within(8_000, redis.call(["PING"]));
    await expect(asking).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    expect(await redis.call(["PING"])).toBe("PONG");
  });

  test("while it is idle fails no command: an idle connection is checked before its next use", async () => {
    await using wire = await wireToRedis();
    const redis = open({ port: wire.port, timeout: 60_000 });
    const keys = [anyPrefix()];
    await redis.run(COUNT, { keys });
    const now = Date.now();
    vi.spyOn(Date, "now").mockImplementation(() => now + 10_000);
    onTestFinished(() => void vi.restoreAllMocks());
    expect(await redis.run(COUNT, { keys })).toBe("2");
    expect(wire.connections).toBe(1);
    wire.blackhole();
    vi.spyOn(Date, "now").mockImplementation(() => now + 20_000);
    const asked = [redis.run(COUNT, { keys }), redis.run(COUNT, { keys })];
    expect(await Promise.all(asked)).toEqual(["3", "4"]);
    expect(wire.connections).toBe(2);
  });

  test("interrupts a subscription for ten seconds at the most", async () => {
    await using wire = await wireToRedis();
    const redis = open({ port: wire.port });
    let stood = 0;
    redis.subscribe("a", {
      ready: () => {
        stood += 1;
      },
      message() {},
    });
    await until(() => stood === 1);
    wire.blackhole();
    await within(
      15_000,
      until(() => stood === 2),
    );
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

  test("because of a closed port or a wrong password fails a command at once, after one request", async () => {
    expect(await failureOf({ port: await freePort() })).toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    await using wire = await wireToRedis();
    const login = { port: wire.port, user: "nobody", password: CANARY };
    expect(await failureOf(login)).toMatchObject({ code: "STORE_REFUSED", retryable: false });
    expect(wire.connections).toBe(1);
  });

  test("because the database does not exist fails the command, and no other database is used", async () => {
    expect(await failureOf({ database: 1_000_000 })).toMatchObject({ code: "STORE_REFUSED" });
  });

  test("because it is a replica is left, and its host name is resolved again", async () => {
    const [, port = 0] = redisServer("redis-replica").ports;
    const redis = open({ port });
    const id = await redis.call(["CLIENT", "ID"]);
    const failure = { code: "STORE_UNAVAILABLE", message: expect.stringContaining("replica") };
    await expect(redis.run(COUNT, { keys: ["a"] })).rejects.toMatchObject(failure);
    expect(await redis.call(["CLIENT", "ID"])).not.toBe(id);
  });

  test("because the user lacks a permission refuses the command", async () => {
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

  test("for now is unavailable: a replica without its primary, too few replicas, too many clients, a running script", async () => {
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
    await until(() =>
      redis.call(["PING"], { reads: true }).then(
        () => false,
        () => true,
      ),
    );
    await expect(redis.run(COUNT, { keys })).rejects.toMatchObject(passing("busy"));
    await redis.call(["SCRIPT", "KILL"]);
    await outcome;
    await set("maxclients", 2);
    // The end of the connection may overtake the answer.
    expect(await failureOf({ port })).toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(await redis.run(READ, { keys })).toBeUndefined();
  });

  test("because of invalid options throws before any request is sent", () => {
    for (const wrong of [{ port: 0 }, { database: -1 }, { host: "" }, { timeout: 0 }]) {
      expect(() => redisClient({ host: "127.0.0.1", ...wrong })).toThrow(RangeError);
    }
  });
});

test("a database is used by its number, and a connection has a name", async () => {
  const info = String(await open({ database: 3 }).call(["CLIENT", "INFO"]));
  expect(info).toMatch(/ db=3 /);
  expect(info).toMatch(/ name=lockstep /);
});

test("a host name with several addresses is tried at each of them", async () => {
  expect(await open({ host: "localhost" }).call(["PING"])).toBe("PONG");
});

test("a scan begins again after a new connection, which may be one to another server", async () => {
  await using server = await startServer("redis");
  const redis = open({ port: Number(new URL(server.url).port) });
  const keys = Array.from({ length: 2_000 }, (_, i) => `{a}lock:${i}`);
  await redis.call(["MSET", ...keys.flatMap((key) => [key, "x"])]);
  const walk = async (afterPage: (page: number) => Promise<unknown>) => {
    const pages: (readonly string[])[] = [];
    for await (const page of scan(redis, "a", "{a}lock:*")) {
      await afterPage(pages.push(page));
    }
    expect(new Set(pages.flat())).toEqual(new Set(keys));
    return pages.length;
  };
  const pages = await walk(async () => {});
  const cut = async (page: number) => {
    if (page !== 2) return;
    await redis.call(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"]).catch(() => {});
    await until(() => redis.call(["PING"]).catch(() => undefined));
  };
  expect(await walk(cut)).toBeGreaterThan(pages);
});

describe("a subscription", () => {
  test("receives messages, and is made anew after its connection is killed or its server becomes a replica", async () => {
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

test("a channel that the user may not hear keeps no other one from being heard", async () => {
  await using server = await startServer("redis");
  const port = Number(new URL(server.url).port);
  const admin = open({ port });
  const rule = ["on", ">secret", "~*", "+@all", "resetchannels", "&open*"];
  await admin.call(["ACL", "SETUSER", "ann", ...rule]);
  const redis = open({ port, user: "ann", password: "secret" });
  const heard: string[] = [];
  const ready: string[] = [];
  for (const channel of ["closed", "open-1", "open-2"]) {
    redis.subscribe(channel, {
      ready: () => ready.push(channel),
      message: (text) => heard.push(text),
    });
  }
  await until(() => ready.length === 2);
  for (const channel of ["closed", "open-1", "open-2"]) {
    await admin.call(["PUBLISH", channel, channel]);
  }
  await until(() => heard.length === 2);
  expect(heard).toEqual(["open-1", "open-2"]);
});

describe("closing", () => {
  test("ends commands under way, and refuses new ones", async () => {
    await using server = await startServer("redis");
    const redis = open({ port: Number(new URL(server.url).port), timeout: 600_000 });
    await redis.call(["PING"]);
    await server.nodes[0]?.kill("SIGSTOP");
    const calls = [redis.call(["PING"]), redis.call(["PING"], { reads: true })];
    const outcomes = Promise.allSettled(calls);
    await pause(20);
    await redis.close();
    expect(await outcomes).toMatchObject([
      { reason: { code: "UNKNOWN_OUTCOME" } },
      { reason: { code: "STORE_CLOSED" } },
    ]);
    await expect(redis.call(["PING"])).rejects.toMatchObject({ code: "STORE_CLOSED" });
    expect(() => redis.subscribe("a", { ready() {}, message() {} })).toThrow();
    await redis.close();
  });

  test("lets the process exit, also with servers that are down or silent, and prints nothing", async () => {
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
    expect(await within(8_000, run.ended)).toBe(0);
  });
});
