import { describe, expect, test } from "vitest";
import { withPlainEndpoints } from "../../core/stores/etcd/client/endpoints.ts";
import type { EtcdOptions } from "../../core/stores/etcd/client/etcd.ts";
import { etcdGatewayClient } from "../../core/stores/etcd/client/gateway.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";

describe("etcd's endpoints", () => {
  test("may be HOST:PORT or URLs, whose scheme says whether they are encrypted", () => {
    const plain = ["http://127.0.0.1:2379", "HTTP://[::1]:2379/", "etcd-1.example:2379"];
    expect(withPlainEndpoints({ endpoints: plain })).toEqual({
      endpoints: ["127.0.0.1:2379", "[::1]:2379", "etcd-1.example:2379"],
    });
    const tls = { ca: "…" };
    expect(withPlainEndpoints({ endpoints: ["https://a:2379", "https://b:2379"] })).toEqual({
      endpoints: ["a:2379", "b:2379"],
      tls: {},
    });
    expect(withPlainEndpoints({ endpoints: ["https://a:2379", "b:2379"], tls })).toEqual({
      endpoints: ["a:2379", "b:2379"],
      tls,
    });
  });

  test.each([
    [[]],
    [[""]],
    [["ftp://a:2379"]],
    [["etcd://a:2379"]],
    [["a:2379,b:2379"]],
    [["a:port"]],
    [["a:65536"]],
    [["[fe80::1%a]:2379"]],
    [["http://user@a:2379"]],
    [["http://a:2379/path"]],
    [["http://a:2379", "https://b:2379"]],
    [["a:2379", "https://b:2379"]],
  ])("that make no sense are refused at once: %j", (endpoints) => {
    for (const open of [etcdClient, etcdGatewayClient]) {
      expect(() => open({ endpoints })).toThrow(/endpoint/);
    }
  });

  test("without encryption are refused if the options require it", () => {
    expect(() => etcdClient({ endpoints: ["http://a:2379"], tls: {} })).toThrow(TypeError);
  });

  test.each([
    ["user", { user: "" }],
    ["user", { user: 5, password: "secret" }],
    ["password", { user: "shop", password: 5 }],
    ["password", { password: "secret" }],
    ["tokens", { user: "shop", tokens: {} }],
  ])("with a login that cannot be used are refused, which names the option %s", (name, login) => {
    for (const open of [etcdClient, etcdGatewayClient]) {
      const options = { endpoints: ["a:2379"], ...login } as unknown as EtcdOptions;
      expect(() => open(options)).toThrow(TypeError);
      expect(() => open(options)).toThrow(`option ${name} `);
      expect(() => open(options)).not.toThrow("secret");
    }
  });
});
