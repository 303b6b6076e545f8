import { openSqlite } from "lockstep/sqlite";
import { Codec, createRuntime, workflow } from "lockstep/steps";
import { z } from "zod";

await using shop = await openSqlite("shop.db");

// In production, keys of 32 bytes from your secret store.
const keys = { "2026": crypto.getRandomValues(new Uint8Array(32)) };
const codec = [Codec.compressed(), Codec.encrypted({ keys, current: "2026" })];

const pay = workflow(
  { name: "pay", version: 1, input: z.object({ card: z.string() }) },
  async (ctx, { card }) =>
    ctx.step("charge", async ({ idempotencyKey }) => charge(card, idempotencyKey)),
);

const runtime = createRuntime({ journal: shop.journal, workflows: [pay], codec });
const paid = await runtime.run(pay, { card: "4242" }, { id: "order-1" });
console.log(paid.status === "completed" && paid.output); // paid with 4242

const stored = await shop.journal.show("order-1");
console.log(stored?.input.split("~")[1]); // encrypted

/** Your payment provider, which recognises a repetition by the key. */
async function charge(card: string, _key: string) {
  return `paid with ${card}`;
}
