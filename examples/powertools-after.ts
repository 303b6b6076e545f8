import { makeIdempotent } from "@aws-lambda-powertools/idempotency";
import { JournalPersistenceLayer } from "lockstep/powertools";
import { openSqlite } from "lockstep/sqlite";

await using shop = await openSqlite("shop.db");

const persistenceStore = new JournalPersistenceLayer(async () => shop.journal);
const charge = makeIdempotent(async ({ order }: { order: string }) => `paid ${order}`, {
  persistenceStore,
});
console.log(await charge({ order: "order-7" })); // paid order-7
