import { openSqlite } from "lockstep/sqlite";
import { createRuntime, workflow } from "lockstep/steps";
import { z } from "zod";

const Parcel = z.object({ id: z.string() });
const ship = {
  name: "ship",
  version: 1,
  input: Parcel,
  id: ({ id }: z.infer<typeof Parcel>) => id,
};
const weighed: string[] = [];

const before = workflow(ship, async (ctx) => {
  const label = await ctx.step("print label", async () => "label 7");
  await ctx.waitFor("packed", z.null());
  return label;
});

const after = workflow(ship, async (ctx, { id }) => {
  if (await ctx.patched("weigh first")) {
    await ctx.step("weigh", async () => weighed.push(id));
  }
  const label = await ctx.step("print label", async () => "label 7");
  await ctx.waitFor("packed", z.null());
  return label;
});

await using shop = await openSqlite("shop.db");
await createRuntime(shop).execute(before, { id: "parcel-1" }); // by the process before the deployment

const runtime = createRuntime(shop);
for (const id of ["parcel-1", "parcel-2"]) {
  await runtime.start(after, { id });
  await runtime.signal(id, "packed", null, { dedupeId: "packed once" });
  await runtime.run(after, { id });
}
console.log(weighed.join()); // parcel-2
