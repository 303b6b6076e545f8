import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Etcd, type EtcdOptions, get, put } from "../../core/stores/etcd/client/etcd.ts";
import { etcdGatewayClient } from "../../core/stores/etcd/client/gateway.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";
import { openEtcdGateway } from "../../core/stores/etcd/node-gateway.ts";
import { nodeFetch } from "../../core/stores/node-fetch.ts";
import { type Authority, makeAuthority } from "../support/certificates.ts";
import { always, anyLease, anyPrefix, openerOf, singleEtcds } from "../support/etcd-under-test.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { OwnEtcd } from "../support/own-etcd.ts";
import { until } from "../support/until.ts";

let authority: Authority;
let stranger: Authority;
let ca: string;
let pair: { readonly cert: string; readonly key: string };

const pem = (file: string) => readFileSync(file, "utf8");

beforeAll(async () => {
  [authority, stranger] = await Promise.all([makeAuthority(), makeAuthority()]);
  ca = pem(authority.ca);
  pair = await authority.sign("localhost");
});

afterAll(async () => {
  for (const each of [authority, stranger]) await each[Symbol.asyncDispose]();
});

/** Makes a gateway client as on Node: with a fetch that has the certificates. */
function openGateway({ tls, ...options }: EtcdOptions): Etcd {
  return etcdGatewayClient({ ...options, ...(tls && { tls: {}, fetch: nodeFetch(tls) }) });
}

const opens = [
  { transport: "grpc", open: etcdClient },
  { transport: "gateway", open: openGateway },
  ...(EVERY_VERSION ? [{ transport: "etcd3", open: await openerOf("etcd3") }] : []),
];

const transports = singleEtcds().flatMap((server) =>
  opens.map(({ transport, open }) => ({ name: `${server.name} over ${transport}`, server, open })),
);

const files = () => [`--cert-file=${pair.cert}`, `--key-file=${pair.key}`];

describe.concurrent.each(transports)("TLS to $name", ({ server, open }) => {
  const refused = { code: "STORE_REFUSED", retryable: false };

  /** When the server ends the connection, the reason is not always known. */
  const failed = { code: expect.stringMatching(/REFUSED|UNAVAILABLE|UNKNOWN_OUTCOME/) };

  const attempt = async (own: OwnEtcd, options: Partial<EtcdOptions>) => {
    // A client that gets no error at once waits for longer than the limit of a test.
    const endpoints = [`localhost:${own.port}`];
    await using etcd = open({ endpoints, timeout: 600_000, ...options });
    await etcd.txn(always(put("a", "1")));
    return (await etcd.range(get("a"))).count;
  };

  test("requires an authority that has signed the server's certificate", async () => {
    await using own = await OwnEtcd.like(server, files(), "https");
    expect(await attempt(own, { tls: { ca } })).toBe(1);
    await expect(attempt(own, { tls: {} })).rejects.toMatchObject(refused);
    const others = { tls: { ca: pem(stranger.ca) } };
    await expect(attempt(own, others)).rejects.toMatchObject(refused);
  });

  test("requires an unexpired certificate for the name of the host", async () => {
    await using own = await OwnEtcd.like(server, files(), "https");
    const byAddress = { endpoints: [own.endpoint], tls: { ca } };
    await expect(attempt(own, byAddress)).rejects.toMatchObject(refused);
    const { cert, key } = await authority.sign("localhost", -1);
    const expired = [`--cert-file=${cert}`, `--key-file=${key}`];
    await using late = await OwnEtcd.like(server, expired, "https");
    await expect(attempt(late, { tls: { ca } })).rejects.toMatchObject(refused);
  });

  test("is not omitted for a server without TLS, nor used unasked with one that has TLS", async () => {
    await using own = await OwnEtcd.like(server);
    await expect(attempt(own, { tls: { ca } })).rejects.toMatchObject(failed);
    await using encrypted = await OwnEtcd.like(server, files(), "https");
    await expect(attempt(encrypted, {})).rejects.toMatchObject(failed);
  });

  test("sends the client's certificate to a server that requires one", async () => {
    const wanting = [...files(), `--trusted-ca-file=${authority.ca}`, "--client-cert-auth"];
    await using own = await OwnEtcd.like(server, wanting, "https");
    const tls = { ca, cert: pem(pair.cert), key: pem(pair.key) };
    expect(await attempt(own, { tls })).toBe(1);
    await expect(attempt(own, { tls: { ca } })).rejects.toMatchObject(failed);
  });

  test("carries leases and watches", async () => {
    await using own = await OwnEtcd.like(server, files(), "https");
    await using etcd = open({ endpoints: [`localhost:${own.port}`], tls: { ca } });
    const [key, lease] = [anyPrefix(), anyLease()];
    const told: string[] = [];
    let stands = false;
    etcd.watch(key, {
      ready() {
        stands = true;
      },
      changed: (changes) => told.push(...changes.map(({ value }) => value)),
    });
    await until(() => stands);
    await etcd.grant(lease, 60);
    await etcd.txn(always(put(key, "1", lease)));
    expect(await etcd.keepAlive(lease)).toBe(60);
    await until(() => told.length === 1);
    await etcd.close();
  });
});

test("certificates that cannot be used are refused when the client is made", async () => {
  const [other, endpoints] = [await stranger.sign("localhost"), ["localhost:1"]];
  const [cert, key] = [pem(pair.cert), pem(other.key)];
  for (const tls of [
    { ca, cert, key },
    { ca, cert, key: "no key" },
  ]) {
    expect(() => etcdClient({ endpoints, tls })).toThrow("etcd's tls cannot be used");
    await expect(openEtcdGateway({ endpoints, tls })).rejects.toThrow("etcd's tls cannot be used");
  }
});

test("certificates that the gateway's fetch would ignore are refused", () => {
  const open = () => etcdGatewayClient({ endpoints: ["localhost:1"], tls: { ca } });
  expect(open).toThrow(TypeError);
});
