import { describe, expect, test } from "vitest";
import { readConfig } from "../../infra/config.ts";
import { open } from "../../infra/open.ts";
import { parseStoreUrl, redact } from "../../infra/store-url.ts";

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
      user: "a@b",
      password: "p/w:",
      name: "shop",
      options: new Map([["ca", "/ca.pem"]]),
    });
    expect(parseStoreUrl("mysql://[::1]:3306/shop").network?.host).toBe("::1");
  });

  test("is shown without what is secret in it", () => {
    expect(redact("mysql://user:secret@host/shop")).toBe("mysql://host/shop");
    expect(redact("two: a://b:c@d/e f://g:h/i@j/k")).toBe("two: a://d/e f://j/k");
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
    ]) {
      await expect(open(url)).rejects.toThrow(TypeError);
    }
    await expect(open("nonsense:x")).rejects.toThrow("sqlite:PATH");
    await expect(open("constructor:x")).rejects.toThrow(TypeError);
    await expect(open("mysql://h/x?connections=0")).rejects.toThrow(RangeError);
    await expect(open("mysql://h/x?conections=5")).rejects.toThrow("conections");
    await expect(open("mysql://u:p@ss/w@h/x")).rejects.toThrow("%40");
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
