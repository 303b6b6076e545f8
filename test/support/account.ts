import * as z from "zod";
import { sql } from "../../core/database/sql.ts";
import type { EntityWrite } from "../../core/journal/entities.ts";
import type { Fence } from "../../core/lock/fence.ts";
import { entity } from "../../core/steps/entity/entity.ts";
import { TerminalError } from "../../core/steps/errors.ts";

/** Calls of the handlers, for the tests of the process. */
export const calls: { readonly operationId: string; readonly fence: Fence }[] = [];

export const hooks = {
  /** Called at the start of each deposit. */
  deposit: async (_: string, _signal: AbortSignal) => {},

  /** Makes the write of a booking, which the journal's database refuses if the name is booked. */
  book: (name: string): EntityWrite => sql`INSERT INTO booking (name) VALUES (${name})`,
};

const Amount = z.number().int().positive();

/** An account whose deposits are also written to the table `effect`, if they are told to. */
export const account = entity(
  {
    name: "account",
    state: z.object({ balance: z.number(), currency: z.string().default("EUR") }),
    initial: { balance: 0 },
    retry: { attempts: 3, base: 1 },
  },
  (on) => ({
    deposit: on(Amount, async ({ state, operationId, fence, signal }, amount) => {
      calls.push({ operationId, fence });
      await hooks.deposit(operationId, signal);
      const balance = state.balance + amount;
      return { state: { ...state, balance }, result: balance };
    }),
    withdraw: on(Amount, async ({ state }, amount) => {
      if (amount > state.balance) {
        throw new TerminalError("TOO_POOR", `${state.balance} is too little`, { data: { amount } });
      }
      const balance = state.balance - amount;
      return { state: { ...state, balance }, result: balance };
    }),
    flaky: on(
      z.object({ failures: z.number() }),
      async ({ attempt, idempotencyKey }, { failures }) => {
        if (attempt <= failures) throw new Error(`attempt ${attempt} failed`);
        return { result: { attempt, idempotencyKey } };
      },
    ),
    book: on(z.string(), async ({ state }, name) => ({
      state: { ...state, balance: state.balance + 1 },
      result: "booked",
      writes: [hooks.book(name)],
    })),
  }),
);
