import type { Database } from "../database/sql.ts";
import { checked } from "./check.ts";
import type { Journal } from "./journal.ts";
import { append } from "./sql/append.ts";
import { claimRun, takeRun } from "./sql/claim.ts";
import { finish, park, renew } from "./sql/hold.ts";
import { Order } from "./sql/order.ts";
import { LastAt } from "./sql/place.ts";
import { purge } from "./sql/purge.ts";
import { due, list, show } from "./sql/reads.ts";
import { cancel, leaveSignal } from "./sql/signals.ts";
import { transact } from "./sql/transact.ts";

/**
 * A journal in the tables of a MySQL, MariaDB or SQLite database. Who opened the database closes it.
 *
 * Only the database's clock is consulted, and every write is one round trip. Whoever carries a run writes to it
 * through one such journal.
 */
export function sqlJournal(database: Database): Journal {
  const place = { database, lastAt: new LastAt(), order: new Order() };
  return checked({
    address: database.address,
    claim: (claim, signal) => claimRun(database, claim, signal),
    take: (take, signal) => takeRun(database, take, signal),
    renew: (run, ttl, signal) => renew(database, run, ttl, signal),
    append: (run, record, signal) => append(place, run, record, signal),
    transact: (run, step, body, signal) => transact(place, { ...step, run, body }, signal),
    park: (run, parking, signal) => park(database, run, parking, signal),
    finish: (run, ending, signal) => finish(database, run, ending, signal),
    signal: (runId, signal) => leaveSignal(database, runId, signal),
    cancel: (runId) => cancel(database, runId),
    due: (query, signal) => due(database, query, signal),
    list: (query = {}) => list(database, query),
    show: (runId) => show(database, runId),
    purge: (limit) => purge(database, limit),
    close: async () => {},
    [Symbol.asyncDispose]: async () => {},
  });
}
