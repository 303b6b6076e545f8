import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test, vi } from "vitest";
import { readEnvironment } from "../../functions/environment.ts";
import { lazily } from "../../functions/lambda/index.ts";

const noSecrets = () => Promise.reject(new Error("there are no secrets"));

test("the environment of a function is checked, and only the names of what is wrong are told", async () => {
  const store = "mysql://root:password-of-ours@db/shop";
  expect(await readEnvironment({ LOCKSTEP_STORE: store, LOCKSTEP_LOCKS: "" }, noSecrets)).toEqual({
    store,
    locks: undefined,
    tokens: [],
    poisonQueue: undefined,
  });
  const rotated = { LOCKSTEP_STORE: store, LOCKSTEP_TOKEN: "0123456789abcdef fedcba9876543210" };
  expect(await readEnvironment(rotated, noSecrets)).toMatchObject({
    tokens: ["0123456789abcdef", "fedcba9876543210"],
  });
  const wrong = {
    LOCKSTEP_LOCKS: "password-of-ours",
    LOCKSTEP_TOKEN: "0123456789abcdef short",
    LOCKSTEP_POISON_QUEUE: "orders",
  };
  const reading = readEnvironment(wrong, noSecrets);
  await expect(reading).rejects.toThrow(TypeError);
  await expect(reading).rejects.toThrow("LOCKSTEP_STORE is missing");
  for (const name of Object.keys(wrong)) await expect(reading).rejects.toThrow(name);
  await expect(reading).rejects.not.toThrow(/password-of-ours|short/);
});

/** What the Secrets Manager does with the n-th call. */
type Answer = (request: IncomingMessage, response: ServerResponse, n: number) => void;

const ARN = "arn:aws:secretsmanager:eu-central-1:000000000000:secret:shop-AbCdEf";

async function secretsManager(answer: Answer): Promise<Disposable> {
  let calls = 0;
  const server = createServer((request, response) => {
    calls += 1;
    answer(request, response, calls);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  vi.stubEnv("AWS_ENDPOINT_URL_SECRETS_MANAGER", `http://127.0.0.1:${port}`);
  vi.stubEnv("AWS_ACCESS_KEY_ID", "test");
  vi.stubEnv("AWS_SECRET_ACCESS_KEY", "test");
  const close = () => {
    vi.unstubAllEnvs();
    server.close();
    server.closeAllConnections();
  };
  return { [Symbol.dispose]: close };
}

test("what stands in it by its ARN is asked of the Secrets Manager, in a signed call", async () => {
  const calls: unknown[] = [];
  using _ = await secretsManager(async (request, response) => {
    const { SecretId } = JSON.parse(await text(request));
    const { "x-amz-target": target, authorization = "" } = request.headers;
    const signed = authorization.includes("/eu-central-1/secretsmanager/");
    calls.push({ target, signed, id: SecretId });
    response.end(JSON.stringify({ SecretString: "mysqls://shop:secret@db/shop\n" }));
  });
  const { store } = await readEnvironment({ LOCKSTEP_STORE_ARN: ARN });
  expect(store).toBe("mysqls://shop:secret@db/shop");
  expect(calls).toEqual([{ target: "secretsmanager.GetSecretValue", signed: true, id: ARN }]);
});

test("a Secrets Manager that does not answer is given up, and asked again by the next event", async () => {
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  using _ = await secretsManager((_request, response, n) => {
    // What a call ends with must not be lost to it.
    if (n === 1) setTimeout(collectGarbage, 1_000);
    if (n > 1) response.end(JSON.stringify({ SecretString: "sqlite:shop.db" }));
  });
  const read = lazily(() => readEnvironment({ LOCKSTEP_STORE_ARN: ARN }));
  await expect(read()).rejects.toThrow("secretsmanager.GetSecretValue was not answered");
  expect(await read()).toMatchObject({ store: "sqlite:shop.db" });
}, 15_000);
