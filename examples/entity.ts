import { sql } from "lockstep/database";
import { openSqlite } from "lockstep/sqlite";
import { createRuntime, entity, TerminalError } from "lockstep/steps";
import { z } from "zod";

await using bank = await openSqlite("bank.db");
await bank.database.batch([sql`CREATE TABLE entry (account TEXT, amount INTEGER)`]);

const Amount = z.int().min(1);
const account = entity(
  { name: "account", state: z.object({ balance: z.int() }), initial: { balance: 0 } },
  (on) => ({
    deposit: on(Amount, async ({ key, state }, amount) => {
      const balance = state.balance + amount;
      const entry = sql`INSERT INTO entry (account, amount) VALUES (${key}, ${amount})`;
      return { state: { balance }, result: balance, writes: [entry] };
    }),
    withdraw: on(Amount, async ({ state }, amount) => {
      if (amount > state.balance) throw new TerminalError("TOO_LITTLE");
      const balance = state.balance - amount;
      return { state: { balance }, result: balance };
    }),
  }),
);

const runtime = createRuntime({ journal: bank.journal, entities: [account] });
const ada = runtime.entity(account, "ada");
await Promise.all(["a", "b", "c"].map((operationId) => ada.call("deposit", 10, { operationId })));
await ada.call("deposit", 10, { operationId: "c" }); // a repetition: nothing changes
console.log(await ada.state()); // { balance: 30 }
const tooMuch = ada.call("withdraw", 31, { operationId: "d" });
console.log(await tooMuch.catch(({ code }) => code)); // TOO_LITTLE
