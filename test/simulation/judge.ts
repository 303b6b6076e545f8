import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  type Row,
  sql,
} from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import type { Attempt, History } from "./history.ts";
import { COUNTED, type Shared, SOLD } from "./shared.ts";
import { type Entry, StockModel, toEntry } from "./stock-model.ts";

/** Judges the whole history, after everything has come to rest. */
export async function checkEnd(shared: Shared, database: Database): Promise<void> {
  const [ledger = [], stock = [], fences = [], effects = [], records = []] = (
    await database.batch([
      sql`SELECT * FROM lockstep_ledger ORDER BY sku, seq`,
      sql`SELECT * FROM lockstep_stock`,
      sql`SELECT name, fence FROM lockstep_fence`,
      sql`SELECT run, token, at FROM simulated_effect ORDER BY rowid`,
      sql`SELECT run_id, step_key, epoch FROM lockstep_step ORDER BY run_id, at`,
    ])
  ).map(({ rows }) => rows);
  shared.history.checkTokens();
  checkRefusals(shared.history, fences);
  for (const row of stock) {
    const sku = asText(row.sku);
    const entries = ledger.filter((entry) => asText(entry.sku) === sku).map(toEntry);
    checkStock(shared, sku, entries, row);
    checkFences(shared, sku, entries);
    checkAttempts(shared.history, sku, entries);
  }
  checkCounts(shared.history, ledger);
  checkEffects(shared, effects);
  checkEpochs(shared.history, records);
  for (const id of shared.ended.keys()) checkRun(shared, id, { effects, ledger });
}

/** A holder is refused only when a later one exists. */
function checkRefusals({ refused, violate }: History, fences: readonly Row[]): void {
  for (const fence of refused) {
    const last = fences.find(({ name }) => asText(name) === fence.resource);
    if (last && asBigInt(last.fence) > fence.token) continue;
    violate("late holder", `the last holder of ${fence.resource} was refused`);
  }
}

/** Repeats the ledger with a model of its own. */
function checkStock(shared: Shared, sku: string, entries: readonly Entry[], row: Row): void {
  const { history, plan } = shared;
  const model = new StockModel(sku === SOLD ? plan.stock : 0, plan.storeJumps.length === 0);
  for (const entry of entries) {
    const { id, kind, quantity, outcome } = entry;
    const asked = (history.attempts.get(id) ?? []).find(({ change }) => isSame(change, entry));
    const isAsked = asked || kind === "expire" || id.startsWith("run-");
    const problem = model.apply(entry, asked?.change.expiresIn ?? 0);
    const what = isAsked ? problem : "nobody asked for it";
    if (what)
      history.violate("stock", `${sku} ${kind} ${id} of ${quantity} was ${outcome}: ${what}`);
  }
  const expected = `${model.onHand} on hand, ${model.reserved} reserved, ${model.sold} sold`;
  const [onHand, reserved, sold] = [row.on_hand, row.reserved, row.sold].map(asNumber);
  const found = `${onHand} on hand, ${reserved} reserved, ${sold} sold`;
  if (found !== expected) history.violate("stock", `${sku} has ${found}, not ${expected}`);
}

/** The counter goes up by one: each holder has written over what it has read. */
function checkCounts({ violate }: History, ledger: readonly Row[]): void {
  let last = 0;
  for (const row of ledger) {
    if (asText(row.sku) !== COUNTED) continue;
    const { kind, id, onHand } = toEntry(row);
    if (kind === "set" && onHand !== last + 1) {
      violate("lost update", `${id} wrote ${onHand} over ${last}`);
    }
    last = onHand;
  }
}

/** Fences never fall. */
function checkFences({ history, plan }: Shared, sku: string, entries: readonly Entry[]): void {
  let highest = 0n;
  for (const { id, token, at } of entries) {
    if (token === undefined) continue;
    if (token < highest) history.violate("late write", `${id} under ${token} after ${highest}`);
    else highest = token;
    if (plan.storeJumps.length === 0) checkClaims(history, { sku, token, at, what: id });
  }
}

interface Write {
  readonly sku: string;
  readonly token: bigint;
  readonly at: number;
  readonly what: string;
}

/** No write is accepted after a higher fence was acknowledged. */
function checkClaims({ claims, violate }: History, { sku, token, at, what }: Write): void {
  const resource = stockLock(sku);
  const higher = claims.find(
    (claim) => claim.fence.resource === resource && claim.fence.token > token && claim.at < at,
  );
  if (higher) violate("late write", `${what} under ${token} after ${higher.fence.token}`);
}

/** Compares the answers to the sku's changes with its ledger. */
function checkAttempts(history: History, sku: string, entries: readonly Entry[]): void {
  const { attempts, repeated, violate } = history;
  for (const [id, all] of attempts) {
    if (all[0]?.change.sku !== sku) continue;
    const [entry, second] = entries.filter((one) => one.id === id);
    if (second) violate("once per operation id", `${id} has more than one entry`);
    for (const attempt of all) {
      const problem = problemOf(attempt, entry);
      if (problem)
        violate("once per operation id", `${id} was answered ${attempt.end}: ${problem}`);
    }
    const isRefused = all.every(({ end }) => end === "refused");
    if (entry && isRefused && !repeated.has(id)) {
      violate("known errors", `${id} was refused, and applied`);
    }
  }
}

function problemOf({ end, remaining, change }: Attempt, entry: Entry | undefined) {
  if (end === "conflict") return entry && isSame(change, entry) ? "it is the same" : undefined;
  if (end !== "applied" && end !== "sold-out" && end !== "closed") return undefined;
  if (!entry) return "it has no entry";
  if (!isSame(change, entry)) return "the entry is another change";
  const isRight = entry.outcome === end && entry.onHand === remaining;
  return isRight ? undefined : `${entry.outcome}, ${entry.onHand} left, not ${remaining}`;
}

/** The end of a reservation has the reservation's quantity. */
function isSame({ kind, quantity }: Attempt["change"], entry: Entry): boolean {
  const closes = kind === "confirm" || kind === "cancel";
  return entry.kind === kind && (closes || entry.quantity === quantity);
}

/** The transactions of runs under the sku's lock. */
function checkEffects({ history, ended, plan }: Shared, effects: readonly Row[]): void {
  let highest = 0n;
  for (const row of effects) {
    const [what, token, at] = [asText(row.run), asBigInt(row.token), asNumber(row.at)];
    if (token < highest) history.violate("late write", `${what} under ${token} after ${highest}`);
    else highest = token;
    if (plan.storeJumps.length > 0) continue;
    checkClaims(history, { sku: SOLD, token, at, what });
    const { end, at: endedAt = 0 } = ended.get(what) ?? {};
    if (at > endedAt) history.violate("no work after the end", `${what} (${end}) sold`);
  }
}

/** A process that has lost a run writes no record. */
function checkEpochs({ violate }: History, records: readonly Row[]): void {
  for (const [i, { run_id, step_key, epoch }] of records.entries()) {
    const before = records[i - 1];
    if (!before || asText(before.run_id) !== asText(run_id)) continue;
    if (asBigInt(before.epoch) <= asBigInt(epoch)) continue;
    violate("one history of a run", `${run_id}: ${step_key} was recorded by an earlier holder`);
  }
}

interface Written {
  readonly effects: readonly Row[];
  readonly ledger: readonly Row[];
}

function checkRun(shared: Shared, id: string, { effects, ledger }: Written): void {
  const { ended, cancelled, answers, calls, outside, history } = shared;
  const { violate } = history;
  const end = ended.get(id)?.end ?? "";
  const isCompleted = end.startsWith("completed");
  if (isCompleted && cancelled.has(id)) {
    violate("cancelled", `${id} completed after its cancellation was acknowledged`);
  }
  const count = effects.filter(({ run }) => asText(run) === id).length;
  const entries = ledger.filter(({ operation_id }) => operation_id === `${id}-sell`).length;
  if (count > 1 || (isCompleted && count !== 1) || count !== entries) {
    violate("once per transaction", `${id}, ${end}: ${count} effects and ${entries} entries`);
  }
  const values = [...(answers.get(id) ?? [])];
  if (values.length > 1) violate("one history of a run", `${id} went on with ${values}`);
  const callCount = calls.get(id) ?? 0;
  if (callCount > 1) violate("at most once", `${id}: ${callCount} calls`);
  const state = outside.get(`${id}/call`);
  if (end === "failed, compensated: yes" && state === "done") {
    violate("undone", `${id} is compensated, and its call is not taken back`);
  }
  if (isCompleted && state !== "done") violate("undone", `${id} completed, its call is ${state}`);
}
