import { type Fence, hasCode, openFence, sealFence } from "../../core/index.ts";
import { get, put } from "../../core/stores/etcd/client/etcd.ts";
import type { GatewayOptions } from "../../core/stores/etcd/client/gateway.ts";
import type { Fetch } from "../../core/stores/fetch.ts";
import {
  etcdGatewayClient,
  etcdInventory,
  guardedWrite,
  type LockedContext,
  lockedFetch,
  problemResponse,
} from "../../functions/edge/index.ts";
import { createApp } from "../../functions/http/app.ts";
import { bearer } from "../../functions/http/auth.ts";

/** A Worker that runs the operation of a request under a lock. */
interface Env {
  readonly ETCD: GatewayOptions;
  readonly AWAY: GatewayOptions;
  readonly TOKEN: string;

  /** Another Worker of this program. */
  readonly NEXT: { fetch(url: string, init: { signal: AbortSignal }): Promise<Response> };
}

let logins = 0;

/** The logins of this isolate. */
const fetching: Fetch = (url, request) => {
  if (url.endsWith("/authenticate")) logins += 1;
  return fetch(url, request);
};

type Body = (request: Request, under: LockedContext<Env>) => Promise<Response>;

const query = (request: Request, name: string) => new URL(request.url).searchParams.get(name) ?? "";

const writeWith = async (fence: Fence, request: Request, { etcd, lock }: LockedContext<Env>) => {
  await guardedWrite(etcd, fence, [put(`${lock.name}-state`, query(request, "value"))]);
  return Response.json({ fence: String(fence) });
};

const write: Body = (request, under) => writeWith(under.lock.fence, request, under);

/** Reports the held lock, waits for the test even when the lock is lost, then writes. */
const holdOn: Body = async (request, under) => {
  const { fence, name } = under.lock;
  await under.etcd.txn({ when: [], do: [put(`${name}-held`, "")] });
  const go = get(`${name}-go`);
  while ((await under.etcd.range(go)).kvs.length === 0) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return writeWith(fence, request, under);
};

const bodies: Readonly<Record<string, Body>> = {
  "/write": write,
  "/hold": holdOn,
  "/away": write,
  async "/throw"() {
    throw new Error("a fault of the body's own");
  },
  /** Writes while its response is read. */
  async "/stream"(request, under) {
    const { fence } = under.lock;
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          const answer = await writeWith(fence, request, under).catch(problemResponse);
          controller.enqueue(new Uint8Array((await answer?.arrayBuffer()) ?? []));
          controller.close();
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body);
  },
  async "/errors"(_, { lock, etcd }) {
    const revoked: boolean[] = [];
    for (const lease of [1n, 2n, 3n]) {
      revoked.push(await etcd.revoke(lease));
      await guardedWrite(etcd, lock.fence, [put(`${lock.name}-state`, String(lease))]);
    }
    return Response.json(revoked);
  },
  async "/seal"(_, { lock }) {
    const secret = "a secret of sixteen bytes";
    const opened = await openFence(await sealFence(lock.fence, secret), secret);
    const [body] = (await sealFence(lock.fence, secret)).split(/:[^:]+$/);
    const forged = await openFence(`${body}:${"0".repeat(64)}`, secret).catch((error) => error);
    const isRefused = hasCode(forged, "FENCE_INVALID");
    return Response.json({ isEqual: String(opened) === String(lock.fence), isRefused });
  },
};

const under = (path: string) =>
  lockedFetch(
    {
      etcd: ({ ETCD, AWAY }: Env) => ({ ...(path === "/away" ? AWAY : ETCD), fetch: fetching }),
      name: (request) => query(request, "name"),
      wait: path === "/hold" ? "50s" : "2s",
      timeout: "60s",
    },
    bodies[path] as Body,
  );

const handlers = new Map(Object.keys(bodies).map((path) => [path, under(path)]));

/** A client of the next Worker that disconnects once `keys` keys with the prefix `at` exist. */
async function leave(request: Request, env: Env): Promise<Response> {
  await using etcd = etcdGatewayClient(env.ETCD);
  const leaving = new AbortController();
  const asking = env.NEXT.fetch(request.url.replace("/leave", "/hold"), leaving);
  const seen = get({ prefix: query(request, "at") });
  while ((await etcd.range(seen)).count < Number(query(request, "keys"))) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  leaving.abort();
  return asking.catch(() => new Response("left"));
}

/** The HTTP app for stock, opened per request as Workers require for I/O. */
async function stock(request: Request, env: Env): Promise<Response> {
  const inventory = etcdInventory(etcdGatewayClient(env.ETCD));
  return createApp({ inventory, authorize: bearer([env.TOKEN]) }).fetch(request);
}

export default {
  async fetch(request: Request, env: Env, context: { waitUntil(promise: Promise<unknown>): void }) {
    const { pathname } = new URL(request.url);
    if (pathname === "/logins") return Response.json(logins);
    if (pathname === "/leave") return leave(request, env);
    const handler = handlers.get(pathname);
    return handler ? handler(request, env, context) : stock(request, env);
  },
};
