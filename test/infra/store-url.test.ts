import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { readConfig } from "../../infra/config.ts";
import { open } from "../../infra/open.ts";
import { redact } from "../../infra/redact.ts";
import { parseStoreUrl } from "../../infra/store-url.ts";
import { temporaryFile } from "../support/under-test.ts";

describe("a store's URL", () => {
  test("is taken apart", () => {
    expect(parseStoreUrl("sqlite:/var/lib/shop.db")).toEqual({
      scheme: "sqlite",
      path: "/var/lib/shop.db",
      network: undefined,
    });
    const { scheme, network } = parseStoreUrl(
      "mysqls://a%40b:p%2Fw%3A@db.example:3307/shop?ca=%2Fca.pem",
    );
    expect(scheme).toBe("mysqls");
    expect(network).toEqual({
      host: "db.example",
      port: 3307,
      hosts: [{ host: "db.example", port: 3307 }],
      user: "a@b",
      password: "p/w:",
      name: "shop",
      options: new Map([["ca", "/ca.pem"]]),
    });
    expect(parseStoreUrl("mysql://[::1]:3306/shop").network?.host).toBe("::1");
  });

  test("is shown without what is secret in it", () => {
    expect(redact("mysql://user:secret@host/shop")).toBe("mysql://host/shop");
    expect(redact("mysql://user:my secret@host/shop")).toBe("mysql://host/shop");
    expect(redact("two: a://b:c@d/e f://g:h i@j/k\nsqlite:a")).toBe("two: a://j/k\nsqlite:a");
  });

  test("is shown at once, however long the line and however many its slashes", () => {
    const slashes = "/".repeat(500_000);
    expect(redact(`${slashes}\na://b:c@d`)).toBe(`${slashes}\na://d`);
  });

  test("whose user or password is not written as it has to be is refused, without a word of it", async () => {
    for (const url of [
      "mysql://u:p@ss/hush@h/x",
      "mysql://u:%zzhush@h/x",
      "mysql://u:pa#hush@h/x",
      "mysql://u:12#hush@h/x",
      "mysql://u:12/hush#s@h/x",
      "mysql://u:12/x?hush@h/x",
      "mysql://u:pa:hush@:port/x",
      "mysql://u:pa hush@h h/x",
      "mysql://u:pa hush@",
      "etcd://u:pa hush@h,",
    ]) {
      await expect(open(url)).rejects.toThrow(/%25.*%40/);
      await expect(open(url)).rejects.not.toThrow(/hush/);
      await expect(open(url)).rejects.toThrow(TypeError);
    }
  });

  test("of a file has its path after the colon, or after an empty host", async () => {
    const { file, remove } = await temporaryFile();
    for (const url of [`sqlite:${file}`, `sqlite://${file}`]) {
      const { locks, close } = await open(url);
      await (await locks.lock("a", { ttl: 1_000, wait: 0 })).unlock();
      expect((await locks.inspect("a")).fence).toBeDefined();
      await close();
    }
    expect(existsSync(file)).toBe(true);
    for (const url of ["sqlite:", "sqlite://shop.db", "sqlite://a b", "sqlite://:memory:"]) {
      await expect(open(url)).rejects.toThrow("sqlite:/var/lib/shop.db");
    }
    await remove();
  });

  test("that is none is refused with what there is", async () => {
    for (const url of [
      "",
      "shop.db",
      "://x",
      "nonsense:x",
      "mysql:shop",
      "mysql://",
      "mysql:///shop",
      "zookeeper:shop",
      "zookeeper://h/x?timeout=5",
    ]) {
      await expect(open(url)).rejects.toThrow(TypeError);
    }
    await expect(open("nonsense:x")).rejects.toThrow("sqlite:PATH");
    await expect(open("constructor:x")).rejects.toThrow(TypeError);
    await expect(open("mysql://h/x?connections=0")).rejects.toThrow(RangeError);
    await expect(open("mysql://h/x?conections=5")).rejects.toThrow("conections");
    for (const url of ["redis:x", "redis://a,b", "redis://h/shop", "redis://h/-1"]) {
      await expect(open(url)).rejects.toThrow(TypeError);
    }
    for (const option of ["prefix={a}", "prefix=", "replicas=-1", "replicas=some"]) {
      await expect(open(`redis://h?${option}`)).rejects.toThrow(RangeError);
    }
    await expect(open("redis://h?ca=x")).rejects.toThrow("ca");
    await expect(open("zookeeper://h,i//b")).rejects.toThrow("/shop/locks");
    for (const url of ["redlock:x", "redlock://a,b/shop", "redlock://a,,b"]) {
      await expect(open(url)).rejects.toThrow(TypeError);
    }
    for (const url of ["redlock://a:1,b:2,a:1", "redlock://a,b,c?prefix="]) {
      await expect(open(url)).rejects.toThrow(RangeError);
    }
    await expect(open("redlock://a,b,c?replicas=1")).rejects.toThrow("replicas");
  });
});

test("the environment is read at once, and all that is wrong with it is told at once", () => {
  expect(readConfig({})).toEqual({ store: "sqlite:.lockstep/lockstep.db", secret: undefined });
  const environment = { LOCKSTEP_STORE: "", LOCKSTEP_SECRET: "hush" };
  expect(() => readConfig(environment)).toThrow(/LOCKSTEP_STORE.*LOCKSTEP_SECRET/);
  expect(() => readConfig(environment)).not.toThrow(/hush/);
});

test("what happens to locks is published on a diagnostics channel", async () => {
  const { subscribe, unsubscribe } = await import("node:diagnostics_channel");
  const seen: unknown[] = [];
  const listen = (event: unknown) => void seen.push((event as { type: string }).type);
  subscribe("lockstep:lock", listen);
  const { locks, close } = await open("memory:");
  const lock = await locks.lock("a", { ttl: 1_000, wait: 0 });
  await locks.tryLock("a", { ttl: 1_000 });
  await lock.ensure(5_000);
  await lock.unlock();
  await close();
  unsubscribe("lockstep:lock", listen);
  expect(seen).toEqual(["acquired", "busy", "renewed", "released"]);
});
