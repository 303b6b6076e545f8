import { expect, test } from "vitest";
import { act, servedBy, servingConsole } from "../support/console.ts";
import { runScript } from "../support/script.ts";
import { newStore, urlOf, WITH_JOURNAL } from "./stores.ts";

test("requests without the token, of other pages, and under other names of the host are refused", async (context) => {
  const token = "the-token-of-the-console";
  const { url } = await servingConsole(context, await newStore(context), { token });
  const statusOf = async (headers: Readonly<Record<string, string>>) => {
    const response = await fetch(`${url}/console/api/info`, { headers });
    return response.status;
  };
  const own = { "lockstep-console": "1", authorization: `Bearer ${token}` };
  expect(await statusOf(own)).toBe(200);
  expect(await statusOf({ ...own, authorization: "Bearer another-token-of-this-length" })).toBe(
    401,
  );
  expect(await statusOf({ "lockstep-console": "1" })).toBe(401);
  expect(await statusOf({ authorization: own.authorization })).toBe(403);
  expect(await statusOf({ ...own, origin: "https://evil.example" })).toBe(403);
  expect(await statusOf({ ...own, origin: url })).toBe(200);
  expect(await rebound(url, own)).toBe(421);
});

/** Sends the request under another name of the host, as a page does whose name now leads to loopback. */
async function rebound(url: string, headers: Readonly<Record<string, string>>): Promise<number> {
  const { request } = await import("node:http");
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/console/api/info`, {
      headers: { ...headers, host: "evil.example" },
    });
    sent.on("response", (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    sent.on("error", reject);
    sent.end();
  });
}

test("an action needs the typed name, and a console that may act", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  const { url: readOnly } = await servingConsole(context, store.url, { readOnly: true });
  await store.journal.setLimits("mail", { concurrency: 1, perKey: 1 });
  const set = { queue: "mail", concurrency: 3 };
  expect(await act(url, "limit", { ...set, confirm: "male" })).toBe("NOT_CONFIRMED");
  expect(await act(readOnly, "limit", { ...set, confirm: "mail" })).toBe("READ_ONLY");
  expect((await store.journal.limits()).get("mail")).toMatchObject({ concurrency: 1 });
  expect(await act(url, "limit", { ...set, confirm: "mail" })).toBe("set, from the next claim on");
  expect((await store.journal.limits()).get("mail")).toEqual({ concurrency: 3, perKey: 1 });
  for (const name of ["erase", "constructor"]) {
    expect(await act(url, name, { confirm: "mail" })).toBe("NOT_FOUND");
  }
  const tooMany = { ...set, concurrency: 1e12, confirm: "mail" };
  expect(await act(url, "limit", tooMany)).toBe("INVALID");
});

test("two users who set two limits of a queue at once set both", async (context) => {
  const { store, url } = await servingConsole(
    context,
    await urlOf(context, WITH_JOURNAL, "postgres"),
  );
  const { url: other } = await servingConsole(context, store.url);
  for (let concurrency = 2; concurrency < 12; concurrency += 1) {
    const perKey = concurrency - 1;
    const answers = await Promise.all([
      act(url, "limit", { queue: "mail", confirm: "mail", concurrency }),
      act(other, "limit", { queue: "mail", confirm: "mail", perKey }),
    ]);
    expect(new Set(answers)).toEqual(new Set(["set, from the next claim on"]));
    expect((await store.journal.limits()).get("mail")).toMatchObject({ concurrency, perKey });
  }
});

test("a text that is no fence is refused as that", async (context) => {
  const { url } = await servingConsole(context, await newStore(context), { isDev: true });
  for (const action of ["release", "freeze", "kill"]) {
    expect(await act(url, action, { lock: "job", fence: "7", confirm: "job" })).toBe("INVALID");
  }
});

test("an action of a page is refused that shows another store", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  const { url: same } = await servingConsole(context, store.url);
  const { url: other } = await servingConsole(context, await newStore(context));
  const set = { queue: "mail", concurrency: 3, confirm: "mail" };
  for (const served of [await servedBy(other), "1"]) {
    expect(await act(url, "limit", set, served)).toBe("OTHER_CONSOLE");
  }
  expect(await store.journal.limits()).toEqual(new Map());
  expect(await act(url, "limit", set, await servedBy(same))).toBe("set, from the next claim on");
});

test("the console of lockstep dev kills the holder of the fence that the user has seen", async (context) => {
  const store = await newStore(context);
  const { url: other } = await servingConsole(context, store);
  const { url, store: opened } = await servingConsole(context, store, { isDev: true });
  using holder = runScript("hold", store, "job", "600000");
  const fence = await holder.line();
  const killed = { lock: "job", fence, confirm: "job" };
  expect(await act(other, "kill", killed)).toBe("DEV_ONLY");
  expect(await act(url, "kill", { ...killed, fence: "0000000000.00000000000000000009" })).toBe(
    "OTHER_HOLDER",
  );
  await using own = await opened.locks.lock("own", { ttl: "10m", wait: 0 });
  expect(await act(url, "kill", { lock: "own", fence: String(own.fence), confirm: "own" })).toBe(
    "OWN_PROCESS",
  );
  expect(await act(url, "freeze", killed)).toBe(`process ${holder.child.pid} is frozen for 5 s`);
  expect(await act(url, "kill", killed)).toContain(`process ${holder.child.pid} is killed`);
  expect(await holder.ended).toBe("SIGKILL");
});
