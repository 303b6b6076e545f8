import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { entityResource } from "../../core/journal/entities.ts";
import { idempotencyKey } from "../../core/steps/idempotency.ts";
import { createRuntime, entity } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow } from "../support/flow.ts";

const input = { n: 1 };

describe("a key", () => {
  test("of a step with a slash in its name is not that of a child's step", async () => {
    const keys: string[] = [];
    const note = async ({ idempotencyKey }: { readonly idempotencyKey: string }) =>
      void keys.push(idempotencyKey);
    const child = flow(async (ctx) => ctx.step("charge", note));
    const wf = flow(async (ctx) => {
      await ctx.child("pay", child, input);
      await ctx.step("pay/charge", note);
      await ctx.step("pay%2Fcharge", note);
    });
    const rt = createRuntime({ journal: memoryJournal() });
    expect(await rt.run(wf, input, { id: "order-7" })).toMatchObject({ status: "completed" });
    expect(keys).toEqual(["order-7/pay/charge", "order-7/pay%2Fcharge", "order-7/pay%252Fcharge"]);
  });

  test("of two runs and steps that share slashes are two, as the comment of the scope says", () => {
    const comment = readFileSync(
      new URL("../../core/steps/step-options.ts", import.meta.url),
      "utf8",
    );
    const keys = [idempotencyKey("a", "b/c"), idempotencyKey("a/b", "c")];
    expect(keys).toEqual(["a/b%2Fc", "a/b/c"]);
    for (const key of keys) expect(comment).toContain(`\`${key}\``);
  });

  test("of a child with a slash in its name is not that of a child's child", async () => {
    const leaf = flow(async (_, { n }) => n);
    const child = flow(async (ctx, given) => ctx.child("y", leaf, given));
    const wf = flow(async (ctx) => [
      await ctx.child("x", child, { n: 1 }),
      await ctx.child("x/y", leaf, { n: 2 }),
    ]);
    const rt = createRuntime({ journal: memoryJournal() });
    expect(await rt.run(wf, input, { id: "p" })).toMatchObject({ output: [1, 2] });
  });

  test("of an entity's operation is that of one name, one key and one operation id", async () => {
    const keys: string[] = [];
    const make = (name: string) =>
      entity({ name, state: z.number(), initial: 0 }, (on) => ({
        add: on(z.number(), async ({ state, idempotencyKey, fence }, n) => {
          keys.push(idempotencyKey, fence.resource);
          return { state: state + n, result: state + n };
        }),
      }));
    const [outer, inner] = [make("a"), make("a/b")];
    const rt = createRuntime({ journal: memoryJournal() });
    expect(await rt.entity(outer, "b/c").call("add", 1, { operationId: "op" })).toBe(1);
    expect(await rt.entity(inner, "c").call("add", 1, { operationId: "op" })).toBe(1);
    expect(await rt.entity(outer, "b").call("add", 1, { operationId: "c/op" })).toBe(1);
    expect(new Set(keys).size).toBe(6);
    expect(entityResource({ entity: "account", key: "ada" })).toBe("entity/account/ada");
  });

  test("of an entity and its name have limits that count what the fence's resource takes", async () => {
    const shelf = { state: z.number(), initial: 0 };
    const short = entity({ ...shelf, name: "/".repeat(66) }, () => ({}));
    const rt = createRuntime({ journal: memoryJournal() });
    rt.entity(short, "/".repeat(85));
    const long = 'key, with "/" and "%" escaped,';
    expect(() => rt.entity(short, "/".repeat(86))).toThrow(long);
    expect(() => rt.entity(short, "/".repeat(86))).toThrow("has 258 bytes, the limit is 255");
    expect(() => entity({ ...shelf, name: "/".repeat(67) }, () => ({}))).toThrow(
      "has 201 bytes, the limit is 200",
    );
  });

  test("of another record is no name of a signal", async () => {
    const rt = createRuntime({ journal: memoryJournal() });
    for (const name of ["a@1", "a#2", "a@1 started"]) {
      const send = rt.signal("r", name, 1, { dedupeId: "1" });
      await expect(send, name).rejects.toThrow('or end in "#" or "@" and a number');
      const wf = flow(async (ctx) => ctx.waitFor(name, z.number()));
      await expect(rt.execute(wf, input), name).resolves.toMatchObject({ status: "blocked" });
    }
  });
});
