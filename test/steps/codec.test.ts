import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Journal } from "../../core/journal/journal.ts";
import { LONGEST_VALUE } from "../../core/journal/records.ts";
import type { RuntimeOptions } from "../../core/steps/contract.ts";
import { Codec, createRuntime, entity, TerminalError, workflow } from "../../core/steps/index.ts";
import { checkReplay, exportRun } from "../../core/steps/testing.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow } from "../support/flow.ts";

const input = { n: 1 };
const SECRET = "4242 4242 4242 4242";
const key = new Uint8Array(32).fill(1);
const keys = { "2025": key };
const secret = Codec.encrypted({ keys, current: "2025" });

/** Everything that the journal holds of the runs, as text. */
async function stored(journal: Journal, ...ids: readonly string[]): Promise<string> {
  const runs = await Promise.all(ids.map((id) => journal.show(id)));
  return JSON.stringify(runs, (_, value) => (typeof value === "bigint" ? `${value}` : value));
}

function runtimeOf(journal: Journal, codec: RuntimeOptions["codec"] = secret) {
  return createRuntime({ journal, codec, inlineWait: 0 });
}

describe.concurrent("a codec", () => {
  test("encodes every value of a run, and another process goes on with them", async () => {
    const journal = memoryJournal();
    const child = workflow(
      { name: "child", version: 1, input: z.object({ card: z.string() }) },
      async (_, { card }) => ({ card }),
    );
    const undone: unknown[] = [];
    const wf = workflow(
      {
        ...{ name: "pay", version: 1, input: z.object({ card: z.string() }) },
        signals: { confirm: z.object({ card: z.string() }), ask: z.string() },
      },
      async (ctx, { card }) => {
        const charged = await ctx.step(
          "charge",
          async () => ({ card, at: new Date(5) }),
          async (result) => undone.push(result),
        );
        await ctx.publish("progress", charged);
        const confirmed = await ctx.waitFor("confirm");
        const answered = await ctx.answer("ask", async (question) => ({ question, card }));
        const of = await ctx.child("child", child, { card });
        const all = await ctx.children("all", child, [{ card }, { card: `${card}!` }], {
          keyOf: ({ card }) => `${card.length}`,
        });
        await ctx.step("fail", { retry: { attempts: 2, base: 1 } }, async ({ attempt }) => {
          if (attempt === 1) throw new Error(card);
          throw new TerminalError("NO", card, { data: { confirmed, answered, of, all } });
        });
      },
    );
    const rt = () => createRuntime({ journal, codec: secret, workflows: [wf, child] });
    const first = await rt().execute(wf, { card: SECRET }, { id: "r" });
    expect(first).toMatchObject({ status: "suspended", reason: "signal" });
    expect(await rt().query("r", "progress")).toEqual({ card: SECRET, at: new Date(5) });
    await rt().signal("r", "confirm", { card: SECRET }, { dedupeId: "1" });
    await rt().resume("r");
    await rt().update("r", "ask", SECRET, { dedupeId: "2", wait: 0 });
    let outcome = await rt().resume("r");
    while (outcome.status === "suspended") outcome = await rt().resume("r");
    const asked = await rt().update("r", "ask", SECRET, { dedupeId: "2" });
    expect(asked).toEqual({ status: "answered", output: { question: SECRET, card: SECRET } });
    expect(outcome).toMatchObject({
      ...{ status: "failed", compensated: "unclear" },
      error: {
        code: "NO",
        data: {
          confirmed: { card: SECRET },
          of: { card: SECRET },
          all: [{ card: SECRET }, { card: `${SECRET}!` }],
        },
      },
    });
    expect(undone).toEqual([{ card: SECRET, at: new Date(5) }]);
    const text = await stored(journal, "r", "r/child");
    expect(text).toContain("~encrypted~");
    expect(text).not.toContain("4242 4242");
    expect(text).not.toContain('\\"json\\"');
  });

  test("encodes the operations and the state of an entity", async () => {
    const journal = memoryJournal();
    const account = entity(
      { name: "account", state: z.object({ cards: z.array(z.string()) }), initial: { cards: [] } },
      (on) => ({
        add: on(z.string(), async ({ state }, card) => {
          if (card === "bad") throw new TerminalError("BAD", SECRET);
          return { state: { cards: [...state.cards, card] }, result: card };
        }),
      }),
    );
    const of = () => runtimeOf(journal).entity(account, "ann");
    await of().tell("add", "first", { operationId: "0" });
    expect(await of().call("add", SECRET, { operationId: "1" })).toBe(SECRET);
    await expect(of().call("add", "bad", { operationId: "2" })).rejects.toMatchObject({
      ...{ code: "BAD", message: SECRET },
    });
    expect(await of().state()).toEqual({ cards: ["first", SECRET] });
    const id = { entity: "account", key: "ann" };
    for (const operation of ["0", "1", "2"]) {
      const { state, answer } = await journal.entities.read(id, operation);
      expect([state, answer?.value].join()).toMatch(/^~encrypted~[^~]+,~encrypted~[^~]+$/);
    }
  });

  test("that is missing leaves an entity to a process that has it", async () => {
    const journal = memoryJournal();
    const counter = entity({ name: "counter", state: z.number(), initial: 0 }, (on) => ({
      add: on(z.number(), async ({ state }, n) => ({ state: state + n, result: state + n })),
    }));
    await runtimeOf(journal).entity(counter, "a").tell("add", 5, { operationId: "1" });
    const without = createRuntime({ journal, entities: [counter] });
    expect(await without.deliver()).toBe(0);
    const calling = without.entity(counter, "a").call("add", 1, { operationId: "2" });
    await expect(calling).rejects.toMatchObject({ code: "UNREADABLE_VALUE" });
    expect(await runtimeOf(journal).entity(counter, "a").call("add", 1, { operationId: "2" })).toBe(
      6,
    );
  });

  test("may come and go: values tell which codecs they need", async () => {
    const journal = memoryJournal();
    const long = "long ".repeat(1_000);
    const names = ["a", "b", "c", "d"];
    const wf = flow(async (ctx) => {
      const seen: string[] = [];
      for (const name of names) {
        seen.push(await ctx.step(name, async () => `${name} ${long}`));
        await ctx.waitFor(`after ${name}`, z.number());
      }
      return seen;
    });
    const chains: RuntimeOptions["codec"][] = [
      undefined,
      Codec.compressed(),
      [Codec.compressed(), secret],
      [
        Codec.compressed({ above: Number.POSITIVE_INFINITY }),
        Codec.encrypted({ keys, current: undefined }),
      ],
    ];
    await createRuntime({ journal }).start(wf, input, { id: "r" });
    for (const [i, codec] of chains.entries()) {
      const rt = createRuntime({ journal, codec, workflows: [wf] });
      await rt.resume("r");
      await rt.signal("r", `after ${names[i]}`, i, { dedupeId: "1" });
    }
    const last = createRuntime({ journal, codec: chains[3], workflows: [wf] });
    expect(await last.resume("r")).toMatchObject({
      output: names.map((name) => `${name} ${long}`),
    });
    const run = await journal.show("r");
    const steps = run?.records.filter(({ kind }) => kind === "step") ?? [];
    expect(steps.map(({ value }) => value?.match(/^~([^~]*)~/)?.[1])).toEqual([
      ...[undefined, "compressed", "compressed+encrypted", undefined],
    ]);
  });

  test("whose key is missing blocks the run, which goes on once the key is there", async () => {
    const journal = memoryJournal();
    const wf = flow(async (ctx) => {
      const card = await ctx.step("card", async () => SECRET);
      return [card, await ctx.waitFor("go", z.string())];
    });
    const old = runtimeOf(journal);
    await old.execute(wf, input, { id: "r" });
    await old.signal("r", "go", "now", { dedupeId: "1" });
    const both = { ...keys, "2026": new Uint8Array(32).fill(2) };
    const withoutOld = Codec.encrypted({ keys: { "2026": both["2026"] }, current: "2026" });
    for (const [codec, reason] of [
      [withoutOld, 'the key "2025" is missing; add it to `keys`'],
      [Codec.compressed(), "it was encoded by encrypted; pass this codec in `codec`"],
      [undefined, "it was encoded by encrypted; pass this codec in `codec`"],
    ] as const) {
      const without = createRuntime({ journal, codec, workflows: [wf] });
      const outcome = await without.resume("r");
      expect(outcome).toMatchObject({ status: "blocked", error: { code: "UNREADABLE_VALUE" } });
      expect((outcome as { error: Error }).error.message).toContain(reason);
      // A process without any key reads why.
      expect((await journal.show("r"))?.error).toContain("UNREADABLE_VALUE");
      expect(await without.retry("r")).toBe("reopened");
    }
    const rotated = runtimeOf(journal, Codec.encrypted({ keys: both, current: "2026" }));
    expect(await rotated.execute(wf, input, { id: "r" })).toMatchObject({
      output: [SECRET, "now"],
    });
    await expect(createRuntime({ journal }).execute(wf, input, { id: "r" })).rejects.toMatchObject({
      code: "UNREADABLE_VALUE",
    });
  });

  test("that cannot decode a signal or the result of a child blocks the run, and loses neither", async () => {
    const journal = memoryJournal();
    const child = workflow({ name: "child", version: 1, input: z.number() }, async (_, n) => n);
    const wf = flow(async (ctx) => {
      const [one, two] = await Promise.all([
        ctx.waitFor("go", z.string()),
        ctx.child("child", child, 5),
      ]);
      return [one, two, await ctx.children("more", child, [6], { keyOf: String })];
    });
    const without = createRuntime({ journal, workflows: [wf, child] });
    await without.execute(wf, input, { id: "r" });
    await runtimeOf(journal).signal("r", "go", "now", { dedupeId: "1" });
    expect(await without.resume("r")).toMatchObject({ status: "blocked" });
    await without.retry("r");
    const other = createRuntime({ journal, codec: secret, workflows: [wf, child] });
    let outcome = await other.resume("r");
    while (outcome.status === "suspended") outcome = await other.resume("r");
    expect(outcome).toMatchObject({ output: ["now", 5, [6]] });
  });

  test("that encrypts opens the values that a fork has from its origins, and large ones", async () => {
    const journal = memoryJournal();
    const large = "receipt ".repeat(10_000);
    const wf = flow(async (ctx) => {
      const card = await ctx.step("card", async () => `${SECRET} of ${ctx.runId}`);
      const receipt = await ctx.step("receipt", async () => large);
      const go = await ctx.waitFor("go", z.string());
      return [card, receipt === large, go, await ctx.step("last", async () => ctx.runId)];
    });
    const rt = createRuntime({ journal, codec: secret, workflows: [wf] });
    await rt.execute(wf, input, { id: "a" });
    await rt.signal("a", "go", "now", { dedupeId: "1" });
    await rt.resume("a");
    await rt.fork("a", { from: "last", as: "b" });
    expect(await rt.resume("b")).toMatchObject({ output: [`${SECRET} of a`, true, "now", "b"] });
    await rt.fork("b", { from: "last", as: "c" });
    const other = createRuntime({ journal, codec: secret, workflows: [wf] });
    expect(await other.resume("c")).toMatchObject({ output: [`${SECRET} of a`, true, "now", "c"] });
    const history = await exportRun(journal, "c");
    expect(history).not.toContain("4242 4242");
    const report = await checkReplay(wf, history, { codec: secret });
    expect(report.divergence).toBeUndefined();
  });

  test("that encrypts does not accept a value that was moved to another run or changed", async () => {
    const journal = memoryJournal();
    const wf = flow(async (ctx) => ctx.step("card", async () => SECRET));
    const rt = createRuntime({ journal, codec: secret, workflows: [wf] });
    await rt.execute(wf, input, { id: "a" });
    const [record] = (await journal.show("a"))?.records ?? [];
    const move = async (id: string, value: string) => {
      await rt.start(wf, input, { id });
      const taken = await journal.take({ runId: id, owner: "an intruder", ttl: 60_000 });
      if (taken.kind !== "claimed") throw new Error("not claimed");
      const run = { runId: id, epoch: taken.epoch };
      await journal.append(run, { key: "card", kind: "step", outcome: "ok", attempt: 1, value });
      await journal.park(run, { reason: "deadline", wakeIn: 0, signalsSeen: 0 });
      return rt.resume(id);
    };
    const value = record?.value ?? "";
    const message = /the key "2025" does not open it as a value of [bc]: it was changed, moved/;
    for (const [id, text] of [
      ["b", value],
      ["c", `${value.slice(0, -8)}AAAA${value.slice(-4)}`],
    ] as const) {
      expect(await move(id, text)).toMatchObject({
        ...{ status: "blocked", error: { message: expect.stringMatching(message) } },
      });
    }
    for (const [id, text] of [
      ["d", value.slice(0, -9)],
      ["e", "~encrypted~"],
      ["f", "~"],
    ] as const) {
      expect(await move(id, text)).toMatchObject({
        ...{ status: "blocked", error: { code: "UNREADABLE_VALUE" } },
      });
    }
  });

  test("decides what is too large: the limit is that of the encoded value", async () => {
    const journal = memoryJournal();
    const given = z.object({ text: z.string() });
    const returns = workflow({ name: "large", version: 1, input: given }, async (ctx, { text }) => {
      await ctx.step("a", async () => text);
      await ctx.publish("p", text);
      return text;
    });
    const long = "x".repeat(2 * LONGEST_VALUE);
    const squeezed = await runtimeOf(journal, [Codec.compressed(), secret]).execute(returns, {
      text: long,
    });
    expect(squeezed).toMatchObject({ status: "completed", output: long });
    const text = "x".repeat(LONGEST_VALUE * 0.8);
    const limit = `bytes after its codec, the limit is ${LONGEST_VALUE}`;
    const rejected = { code: "TOO_LARGE", message: expect.stringContaining(limit) };
    const rt = runtimeOf(journal);
    await expect(rt.execute(returns, { text })).rejects.toMatchObject(rejected);
    for (const large of [
      flow(async (ctx) => ctx.step("a", async () => text)),
      flow(async (ctx) => ctx.publish("a", text)),
      flow(async () => text),
    ]) {
      expect(await rt.execute(large, input)).toMatchObject({ status: "failed", error: rejected });
    }
    const waits = flow(async (ctx) => ctx.waitFor("go", z.string()));
    await rt.execute(waits, input, { id: "w" });
    const sent = rt.signal("w", "go", text, { dedupeId: "1" });
    await expect(sent).rejects.toMatchObject(rejected);
  });

  test("encodes the inputs of singletons and of debounced starts, whose ids it does not know", async () => {
    const journal = memoryJournal();
    const wf = flow(async (_, { n }) => n);
    const rt = createRuntime({ journal, codec: secret, workflows: [wf] });
    const debounce = { key: "a", for: 30 };
    const first = await rt.start(wf, { n: 1 }, { debounce });
    const second = await rt.start(wf, { n: 2 }, { debounce });
    expect(second.runId).toBe(first.runId);
    expect(await rt.start(wf, { n: 3 }, { singleton: "s" })).toMatchObject({ status: "suspended" });
    await new Promise((resolve) => setTimeout(resolve, 40));
    expect(await rt.resume(first.runId)).toMatchObject({ output: 2 });
    expect((await journal.show(first.runId))?.input).toMatch(/^~encrypted~/);
  });

  test("parks no run whose values are still to be encoded", async () => {
    const journal = memoryJournal();
    const slow: Codec = {
      id: "slow",
      encode: async (bytes) => {
        await new Promise((resolve) => setTimeout(resolve, 250));
        return bytes;
      },
      decode: (bytes) => bytes,
    };
    const large = "x".repeat(200_000);
    const wf = flow(async (ctx) => {
      const idle = ctx.waitFor("close", z.null());
      await Promise.race([idle, ctx.publish("last", large)]);
      return large;
    });
    const outcome = await runtimeOf(journal, slow).execute(wf, input, { id: "r" });
    expect(outcome).toMatchObject({ status: "completed", output: large });
  });

  test("that fails to encode fails no run: the step is repeated", async () => {
    const journal = memoryJournal();
    let isAway = true;
    const codec: Codec = {
      id: "kms",
      encode: async (value) => {
        if (isAway) throw new Error("the key service is away");
        return value.toReversed();
      },
      decode: (bytes) => bytes.toReversed(),
    };
    const wf = flow(async (ctx) => ctx.step("a", async () => SECRET));
    const rt = createRuntime({ journal, codec, workflows: [wf], lease: 3_000 });
    await createRuntime({ journal }).start(wf, input, { id: "r" });
    await expect(rt.resume("r")).rejects.toThrow("the key service is away");
    isAway = false;
    await expect
      .poll(() => rt.resume("r"), { timeout: 60_000 })
      .toMatchObject({ status: "completed", output: SECRET });
  });
});

test.for<readonly [string, () => unknown, string]>([
  [
    "a short key",
    () => Codec.encrypted({ keys: { a: new Uint8Array(16) }, current: "a" }),
    "32 bytes",
  ],
  [
    "an unknown key",
    () => Codec.encrypted({ keys, current: "2024" }),
    "current must be the id of one of",
  ],
  ["two codecs of one id", () => runtimeOf(memoryJournal(), [secret, secret]), "two codecs"],
  [
    "an id that is no word",
    () => runtimeOf(memoryJournal(), { ...secret, id: "a+b" }),
    'codec id "a+b" must be 1 to 50 letters',
  ],
  [
    "a codec without encode",
    () => runtimeOf(memoryJournal(), { id: "kms" } as never),
    "encode of codec kms must be a function, not undefined",
  ],
  [
    "a codec without decode",
    () => runtimeOf(memoryJournal(), { ...secret, decode: undefined as never }),
    "must be a function, not undefined",
  ],
])("%s is refused", ([, make, message]) => {
  expect(make).toThrow(message);
});

test("a compressed value that grows without end is unreadable", async () => {
  const stream = new Blob([new Uint8Array(65 * 1_048_576)]).stream();
  const larger = stream.pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(larger).arrayBuffer());
  await expect(Codec.compressed().decode(bytes, "r")).rejects.toThrow("more than 67108864 bytes");
});
