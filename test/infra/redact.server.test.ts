import { describe, expect, inject, test } from "vitest";
import { open } from "../../infra/open.ts";
import { redact } from "../../infra/redact.ts";
import { cli } from "../support/cli.ts";
import { startWithUsers } from "../support/etcd-users.ts";
import { redisServer } from "../support/redis-under-test.ts";
import { temporaryFile } from "../support/under-test.ts";

const SECRET = "canary-3f81";

function errorOf(call: Promise<unknown>): Promise<Error> {
  return call.then(
    () => Promise.reject(new Error("it did not fail")),
    (error) => error,
  );
}

/** Every message of the error and its causes, as the store and its client wrote them. */
async function messagesOf(url: string): Promise<readonly string[]> {
  await using opened = await open(url);
  const error = await errorOf(opened.locks.inspect("a"));
  const messages: string[] = [];
  for (let e: unknown = error; e instanceof Error; e = e.cause) messages.push(e.message);
  return messages;
}

async function expectWhole(url: string, sentence: RegExp): Promise<void> {
  const messages = await messagesOf(url);
  expect(messages.join("\n")).toMatch(sentence);
  for (const message of messages) {
    expect(redact(message)).toBe(message);
    expect(message).not.toContain(SECRET);
  }
}

describe("the whole message of a client is shown", () => {
  test.each(inject("sqlServers").map(({ name }) => name))(
    "mysql2 on %s tells what the server said",
    async (name) => {
      const { url = "" } = inject("sqlServers").find((server) => server.name === name) ?? {};
      const { host } = new URL(url);
      const denied = /Access denied for user 'nobody'@'[^']+' \(using password: YES\)$/m;
      await expectWhole(`mysql://nobody:${SECRET}@${host}/shop`, denied);
      await expectWhole(`mysql://nobody:${SECRET}@127.0.0.1:1/shop`, /ECONNREFUSED 127.0.0.1:1$/m);
      const { status, stderr } = await cli(
        "list",
        "--store",
        `mysql://nobody:${SECRET}@${host}/shop`,
      );
      expect({ status, stderr }).toEqual({ status: 69, stderr: expect.stringMatching(denied) });
      expect(stderr).not.toContain(SECRET);
    },
  );

  test("ioredis tells what the server said", async () => {
    const { host } = new URL(redisServer("redis").url);
    await expectWhole(
      `redis://nobody:${SECRET}@${host}`,
      /WRONGPASS invalid username-password pair/,
    );
    await expectWhole(`redis://nobody:${SECRET}@127.0.0.1:1`, /ECONNREFUSED 127.0.0.1:1/);
  });

  test("etcd's clients tell it over gRPC and the gateway", async () => {
    const [server] = inject("etcdServers");
    if (!server) throw new Error("there is no etcd");
    await using own = await startWithUsers(server);
    for (const scheme of ["etcd", "etcd+http"]) {
      const url = `${scheme}://shop:${SECRET}@${own.endpoint}/shop`;
      await expectWhole(url, /authentication failed, invalid user ID or password/);
      await expectWhole(`${scheme}://shop:${SECRET}@127.0.0.1:1/shop`, /127\.0\.0\.1:1/);
    }
  });

  test("ZooKeeper's client tells the address", async () => {
    await expectWhole(`zookeeper://shop:${SECRET}@127.0.0.1:1`, /127\.0\.0\.1:1/);
  });

  test("SQLite tells the folder that cannot be made", async () => {
    const { file, remove } = await temporaryFile();
    const error = await errorOf(open(`sqlite:${file}/no@such/folder`));
    expect(error.message).toMatch(/cannot be made: ENOENT.*no@such/);
    expect(redact(error.message)).toBe(error.message);
    await remove();
  });
});

describe("the text of an error", () => {
  test("loses its secrets", () => {
    expect(redact("mysql://user:secret@host/shop")).toBe("mysql://host/shop");
    expect(redact("mysql://user:my secret@host/shop")).toBe("mysql://host/shop");
    expect(redact("mysql://u:p/q r@h:1/shop")).toBe("mysql://h:1/shop");
    expect(redact("etcd://u:p q@a:1,b:2/x is away")).toBe("etcd://a:1,b:2/x is away");
    expect(redact("two: a://b:c@d/e f://g:h i@j/k\nsqlite:a")).toBe(
      "two: a://d/e f://j/k\nsqlite:a",
    );
    expect(redact("a://u:p@h/x?sentinel-password=secret&ca=x")).toBe(
      "a://h/x?sentinel-password=…&ca=x",
    );
    expect(redact("a://h/x?password=secret&user=b and ?access_token=t, &clientSecret=c")).toBe(
      "a://h/x?password=…&user=b and ?access_token=… &clientSecret=…",
    );
    expect(redact("(see http://u:p@h/x).")).toBe("(see http://h/x).");
  });

  test("keeps its sentences", () => {
    for (const sentence of [
      "mysql://127.0.0.1:3306/shop refuses: Access denied for user 'a'@'localhost' (using password: YES)",
      "redlock://[::1]:1,b:2/0 is unavailable: ask admin@example.com",
      "POST https://api.example.com/v1/charges failed for bob@example.com",
      "https://example.com: ask bob@example.com",
      "    at file:///srv/node_modules/@hono/node-server/index.js:1:2",
      "// nothing here for bob@example.com",
    ]) {
      expect(redact(sentence)).toBe(sentence);
    }
  });

  test("keeps the list of stores after a URL of an unknown store", async () => {
    const { message } = await errorOf(open("nonsense:x"));
    expect(message).toContain("redis://");
    expect(redact(message)).toBe(message);
  });

  test("takes little time, even for long lines with many slashes", () => {
    const slashes = "/".repeat(500_000);
    expect(redact(`${slashes}\na://b:c@d`)).toBe(`${slashes}\na://d`);
    const urls = "a://:b ".repeat(50_000);
    expect(redact(urls)).toBe(urls);
  });
});
