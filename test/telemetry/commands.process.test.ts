import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { MAIN, startCli } from "../support/cli.ts";
import { runNode } from "../support/script.ts";
import { until } from "../support/until.ts";

const program = (name: string) => fileURLToPath(new URL(`../programs/${name}`, import.meta.url));

let cwd: string;
let env: NodeJS.ProcessEnv;

beforeEach(async () => {
  cwd = await mkdtemp(join(tmpdir(), "lockstep-spans-"));
  onTestFinished(() => rm(cwd, { recursive: true, force: true }));
  const sdk = `--import ${program("sdk.ts")}`;
  const plain = { ...process.env, LOCKSTEP_STORE: undefined, XDG_STATE_HOME: cwd };
  env = { ...plain, NODE_OPTIONS: sdk, SPANS: join(cwd, "spans") };
});

interface Span {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId?: string;
}

async function spans(): Promise<readonly Span[]> {
  const text = await readFile(join(cwd, "spans"), "utf8").catch(() => "");
  return text
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
}

/** "child < parent" for each span, in the order of their ends. */
async function tree() {
  const all = await spans();
  const nameOf = (id: string | undefined) => all.find(({ spanId }) => spanId === id)?.name;
  return all.map(({ name, parentId }) => `${name} < ${nameOf(parentId)}`);
}

const EXPECTED = [
  "lock wait < step reserve",
  "lock hold < step reserve",
  "step reserve < run place-order",
  "step charge < run place-order",
];

test("lockstep run and worker report to the SDK that they were started with", async () => {
  const words = ["run", program("order.ts"), "--workflow", "place-order", "--input"];
  const input = JSON.stringify({ orderId: "o-1" });
  const { status, stderr } = await startCli([...words, input], { cwd, env }).finished;
  expect({ status, stderr }).toMatchObject({ status: 0 });
  expect(await tree()).toEqual([...EXPECTED, "run place-order < undefined"]);
});

test("lockstep dev continues the trace of a request", async () => {
  const server = runNode([MAIN, "dev", program("order.ts"), "--port", "0"], { cwd, env });
  onTestFinished(() => server[Symbol.dispose]());
  const { url, token } = JSON.parse(await server.line());
  const [traceId, spanId] = ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"];
  const answer = await fetch(`${url}/workflows/place-order/runs`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      "idempotency-key": "o-1",
      traceparent: `00-${traceId}-${spanId}-01`,
    },
    body: JSON.stringify({ orderId: "o-1" }),
  });
  expect(answer.status).toBe(200);
  await until(async () => (await spans()).some(({ name }) => name === "run place-order"));
  const run = (await spans()).find(({ name }) => name === "run place-order");
  expect(run).toMatchObject({ traceId, parentId: spanId });
  expect(await tree()).toEqual(expect.arrayContaining(EXPECTED));
});
