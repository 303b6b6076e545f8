import { text } from "node:stream/consumers";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { readEnvironment } from "../../functions/aws/environment.ts";
import { lazy } from "../../functions/lambda/index.ts";
import { SECRET_ARN as ARN, secretsManager } from "../support/secrets-manager.ts";

const noSecrets = () => Promise.reject(new Error("there are no secrets"));

test("readEnvironment names missing and invalid variables, and shows no value", async () => {
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

test("readEnvironment names the variable of a token that clients cannot send as it is", async () => {
  const token = { LOCKSTEP_STORE: "sqlite:shop.db", LOCKSTEP_TOKEN: "Zugangsschlüssel für alle" };
  await expect(readEnvironment(token, noSecrets)).rejects.toThrow(
    "LOCKSTEP_TOKEN must be tokens of at least 16 characters of ASCII",
  );
  const umlaut = { ...token, LOCKSTEP_TOKEN: "Zugangsschlüssel-für-alle" };
  await expect(readEnvironment(umlaut, noSecrets)).rejects.toThrow("LOCKSTEP_TOKEN");
});

test("readEnvironment reads secrets from the Secrets Manager with a signed call", async () => {
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

test("readEnvironment gives up on a silent Secrets Manager, and the next event asks again", async () => {
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  using _ = await secretsManager((_request, response, n) => {
    // The garbage collection must not take the signal that ends the call.
    if (n === 1) setTimeout(collectGarbage, 1_000);
    if (n > 1) response.end(JSON.stringify({ SecretString: "sqlite:shop.db" }));
  });
  const read = lazy(() => readEnvironment({ LOCKSTEP_STORE_ARN: ARN }));
  await expect(read()).rejects.toThrow("secretsmanager.GetSecretValue was not answered");
  expect(await read()).toMatchObject({ store: "sqlite:shop.db" });
});

test("readEnvironment makes the URL of the store from a secret that RDS keeps", async () => {
  const secret = { username: "shop", password: "a/b:c@", host: "db", port: 3307, dbname: "shop" };
  const read = async () => JSON.stringify(secret);
  const { store } = await readEnvironment({ LOCKSTEP_STORE_ARN: ARN }, read);
  expect(store).toBe("mysqls://shop:a%2Fb%3Ac%40@db:3307/shop");
});

test.each(["postgres", "aurora-postgresql"])(
  "readEnvironment makes the URL of PostgreSQL from a secret of the engine %s",
  async (engine) => {
    const secret = { engine, username: "shop", password: "a/b", host: "db", dbname: "shop" };
    const read = async () => JSON.stringify(secret);
    const { store } = await readEnvironment({ LOCKSTEP_STORE_ARN: ARN }, read);
    expect(store).toBe("postgres://shop:a%2Fb@db/shop?sslmode=verify-full");
  },
);
