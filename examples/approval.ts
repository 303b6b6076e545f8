import { openSqlite } from "lockstep/sqlite";
import { createRuntime, TerminalError, workflow } from "lockstep/steps";
import { runWorker } from "lockstep/worker";
import { z } from "zod";

await using shop = await openSqlite("shop.db");

const Trip = z.object({ city: z.string(), nights: z.int() });
const signals = { nights: z.int().min(1), decision: z.enum(["approved", "rejected"]) };
const bookTrip = workflow(
  { name: "book-trip", version: 1, input: Trip, signals },
  async (ctx, { city, nights }) => {
    await ctx.step(
      "reserve",
      async ({ idempotencyKey }) => `${nights} nights in ${city}, ${idempotencyKey}`, // your hotel
      async (_, { stepIdempotencyKey }) => `cancelled ${stepIdempotencyKey}`,
    );
    await ctx.publish("status", "waits for a manager");
    const more = await ctx.answer("nights", async (added) => nights + added);
    const decision = await ctx.waitFor("decision", { timeout: "3d" });
    if (decision !== "approved") throw new TerminalError("NOT_APPROVED");
    return ctx.step("book", async () => `${more} nights in ${city}`);
  },
);

const runtime = createRuntime({ journal: shop.journal, workflows: [bookTrip] });
const stop = new AbortController();
const worker = runWorker({ runtime, signal: stop.signal });
const trip = { city: "Rome", nights: 2 };
for (const decision of ["approved", "rejected"]) {
  await runtime.start(bookTrip, trip, { id: decision });
  await runtime.update(decision, "nights", 1, { dedupeId: "ann-1" });
  await runtime.signal(decision, "decision", decision, { dedupeId: "boss-1" });
}
console.log(await runtime.query("approved", "status")); // waits for a manager
const approved = await runtime.run(bookTrip, trip, { id: "approved" });
console.log(approved.status === "completed" && approved.output); // 3 nights in Rome
const rejected = await runtime.run(bookTrip, trip, { id: "rejected" });
console.log(rejected.status === "failed" && rejected.compensated); // yes
stop.abort();
await worker;
