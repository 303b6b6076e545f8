import type { ServerResponse } from "node:http";
import { describe, expect, test, vi } from "vitest";
import { rdsOptions, withSecret } from "../../functions/lambda/index.ts";
import { SECRET_ARN, secretsManager } from "../support/secrets-manager.ts";

/** A store that only remembers what it was opened with, and whether it was closed. */
class FakeStore implements AsyncDisposable {
  readonly secret: string;
  isClosed = false;

  constructor(secret: string) {
    this.secret = secret;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.isClosed = true;
  }
}

const openFake = async (secret: string) => new FakeStore(secret);

const tell = (response: ServerResponse, SecretString: string) =>
  response.end(JSON.stringify({ SecretString }));

describe("withSecret", () => {
  test("reads the secret once within its age, also for events at the same time", async () => {
    let calls = 0;
    using _ = await secretsManager((_request, response) => {
      calls += 1;
      tell(response, "first");
    });
    const shop = withSecret(SECRET_ARN, openFake);
    const [one, other] = await Promise.all([shop(), shop()]);
    expect(one.secret).toBe("first");
    expect(other).toBe(one);
    expect(await shop()).toBe(one);
    expect(calls).toBe(1);
  });

  test("says what it needs, and which call failed", async () => {
    for (const arn of ["", "shop", undefined as unknown as string]) {
      const opening = withSecret(arn, openFake)();
      await expect(opening).rejects.toThrow(/needs the ARN of a secret/);
    }
    const nowhere = "arn:aws:secretsmanager:nowhere-1:1:secret:shop";
    vi.stubEnv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:1");
    vi.stubEnv("AWS_ACCESS_KEY_ID", "test");
    vi.stubEnv("AWS_SECRET_ACCESS_KEY", "test");
    await expect(withSecret(nowhere, openFake)()).rejects.toThrow(/GetSecretValue: /);
    vi.unstubAllEnvs();
  });

  test("shows nothing of a text that is no ARN: it may be the secret", async () => {
    const opening = withSecret("mysql://root:hidden@db", openFake)();
    await expect(opening).rejects.toThrow("needs the ARN of a secret, and has another text");
  });

  test("opens the store again after a rotation, and closes the former one when no invocation uses it", async () => {
    using _ = await secretsManager((_request, response, n) => {
      tell(response, n < 3 ? "first" : "second");
    });
    const shop = withSecret(SECRET_ARN, openFake, { maxAge: 0 });
    const former = await shop();
    expect(await shop()).toBe(former);
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    try {
      expect((await shop()).secret).toBe("second");
      await vi.advanceTimersByTimeAsync(890_000);
      expect(former.isClosed).toBe(false);
      await vi.advanceTimersByTimeAsync(10_000);
      expect(former.isClosed).toBe(true);
    } finally {
      vi.useRealTimers();
    }
  });

  test("signs with the given keys, and says when there are none", async () => {
    const signatures: unknown[] = [];
    using _ = await secretsManager(({ headers }, response) => {
      signatures.push(headers.authorization, headers["x-amz-security-token"]);
      tell(response, "first");
    });
    const keys = { accessKeyId: "mine", secretAccessKey: "hidden", sessionToken: "session" };
    await withSecret(SECRET_ARN, openFake, { credentials: async () => keys })();
    expect(signatures).toEqual([expect.stringContaining("Credential=mine/"), "session"]);
    vi.stubEnv("AWS_ACCESS_KEY_ID", "");
    await expect(withSecret(SECRET_ARN, openFake)()).rejects.toThrow(
      "GetSecretValue: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give credentials",
    );
  });

  test("keeps the store while the secret cannot be read again", async () => {
    using _ = await secretsManager((_request, response, n) => {
      if (n === 1) tell(response, "first");
      else response.writeHead(400).end("{}");
    });
    const shop = withSecret(SECRET_ARN, openFake, { maxAge: 0 });
    const store = await shop();
    expect(await shop()).toBe(store);
    expect(store.isClosed).toBe(false);
  });

  test("tries again after a failure to open the store", async () => {
    using _ = await secretsManager((_request, response) => tell(response, "first"));
    let attempts = 0;
    const shop = withSecret(SECRET_ARN, async (secret) => {
      attempts += 1;
      if (attempts === 1) throw new Error("no network yet");
      return openFake(secret);
    });
    await expect(shop()).rejects.toThrow("no network yet");
    expect((await shop()).secret).toBe("first");
  });
});

describe("rdsOptions", () => {
  const whole = {
    engine: "mysql",
    host: "db",
    port: 3306,
    username: "shop",
    password: "hidden",
    dbname: "shop",
  };

  test("reads host, port, user, password and database", () => {
    const options = { host: "db", port: 3306, user: "shop", password: "hidden", database: "shop" };
    expect(rdsOptions(JSON.stringify(whole))).toEqual(options);
  });

  test("takes what the secret of a master user lacks from its options", () => {
    const master = JSON.stringify({ username: "admin", password: "hidden" });
    const more = { host: "db", database: "shop" };
    // No port: openMysql and openPostgres have defaults of their own.
    expect(rdsOptions(master, more)).toEqual({ ...more, user: "admin", password: "hidden" });
  });

  test.each([
    ["the secret of RDS has no host", JSON.stringify({ ...whole, host: undefined })],
    ["the secret of RDS has no password", JSON.stringify({ ...whole, password: "" })],
    ["the secret of RDS is not JSON", "hidden{"],
    ["the secret of RDS has no host", "null"],
  ])("says that %s, and shows no value", (problem, secret) => {
    expect(() => rdsOptions(secret)).toThrow(TypeError);
    expect(() => rdsOptions(secret)).toThrow(problem);
    expect(() => rdsOptions(secret)).not.toThrow(/hidden/);
  });
});
