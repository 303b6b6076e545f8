import { registerHooks } from "node:module";
import { fileOf, type Mutant, mutated } from "../mutants/mutant.ts";

/** Defects that a check of the simulation must catch. */
export const MUTANTS: readonly Mutant[] = [
  {
    name: "a claim takes a held lock",
    file: "core/stores/sql/locks.ts",
    find: `(lockstep_lock.free_at <= \${now} OR lockstep_lock.owner = \${owner})`,
    replace: "(1 = 1)",
  },
  {
    name: "a claim takes a lock that is about to expire",
    file: "core/stores/sql/locks.ts",
    find: `lockstep_lock.free_at <= \${now} OR`,
    replace: `lockstep_lock.free_at <= \${now} + \${micros(ttl / 2)} OR`,
  },
  {
    name: "a release without the owner check",
    file: "core/stores/sql/locks.ts",
    find: `WHERE name IN (\${list(names)}) AND owner = \${owner} AND expires_at > \${now}\`;
      const statement`,
    replace: `WHERE name IN (\${list(names)}) AND expires_at > \${now}\`;
      const statement`,
  },
  {
    name: "a renewal without the owner check",
    file: "core/stores/sql/locks.ts",
    find: `name IN (\${list(names)}) AND owner IN (\${list(owners)}) AND expires_at > \${now}\`;`,
    replace: `name IN (\${list(names)}) AND expires_at > \${now}\`;`,
  },
  {
    name: "tokens that are not counted",
    file: "core/stores/sql/locks.ts",
    find: "ELSE lockstep_fence.fence + 1 END",
    replace: "ELSE lockstep_fence.fence END",
  },
  {
    name: "several locks, some of them of others",
    file: "core/stores/sql/locks.ts",
    find: `AND \${names.length} > (
          SELECT COUNT(*) FROM (`,
    replace: `AND 0 > (
          SELECT COUNT(*) FROM (`,
  },
  {
    name: "an expiry that is brought forward",
    file: "core/stores/sql/locks.ts",
    find: `WHEN \${now} + \${micros(ttl)} > expires_at
`,
    replace: `WHEN \${now} + \${micros(ttl)} <> expires_at
`,
  },
  {
    name: "validity from the answer",
    file: "core/lock/polling.ts",
    find: "return tokens && { fences: this.#issue(tokens), sentAt };",
    replace: "return tokens && { fences: this.#issue(tokens), sentAt: instant() };",
  },
  {
    name: "a renewal's validity from the answer",
    file: "core/lock/polling.ts",
    find: "return (await this.#renew(span, limit)) ? grant : undefined;",
    replace:
      "return (await this.#renew(span, limit)) ? { ...grant, sentAt: instant() } : undefined;",
  },
  {
    name: "no allowance for drift",
    file: "core/lock/lease.ts",
    find: "return ttl / 100 + 2;",
    replace: "return 0;",
  },
  {
    name: "the monotonic clock alone",
    file: "core/lock/time.ts",
    find: "return Math.max(now.mono - start.mono, now.wall - start.wall);",
    replace: "return now.mono - start.mono;",
  },
  {
    name: "the wall clock alone",
    file: "core/lock/time.ts",
    find: "return Math.max(now.mono - start.mono, now.wall - start.wall);",
    replace: "return now.wall - start.wall;",
  },
  {
    name: "a held lock that is not compared with the clock",
    file: "core/lock/lease.ts",
    find: `    this.checkExpiry();
    const remaining = this.remaining();
    if (this.#ended) throw this.#lost(this.#ended);
    if (remaining < spare) throw this.#tooShort(spare);`,
    replace: "    if (this.#ended) throw this.#lost(this.#ended);",
  },
  {
    name: "a lost renewal that is taken for a success",
    file: "core/lock/polling.ts",
    find: "return (await this.#renew(span, limit)) ? grant : undefined;",
    replace: `await this.#renew(span, limit).catch(() => {});
        return grant;`,
  },
  {
    name: "an answer after the ttl that is believed",
    file: "core/lock/polling.ts",
    find: "if (hold.lease.remaining() > 0 && !signal.aborted) return hold;",
    replace: "return hold;",
  },
  {
    name: "a claim of unknown outcome that is not withdrawn",
    file: "core/lock/polling.ts",
    find: "if (!isCertain(error)) await this.#withdraw();",
    replace: "",
  },
  {
    name: "certain instead of unknown",
    file: "core/lock/errors.ts",
    find: `"STORE_UNAVAILABLE", "STORE_REFUSED", "STORE_CLOSED");`,
    replace: `"STORE_UNAVAILABLE", "STORE_REFUSED", "STORE_CLOSED", "UNKNOWN_OUTCOME");`,
  },
  {
    name: "one owner for all claims of a request",
    file: "core/lock/polling.ts",
    find: `    await this.#drop(0);
    this.#changeOwner();`,
    replace: "    await this.#drop(0);",
  },
  {
    name: "a fence that is not checked",
    file: "core/database/claim.ts",
    find: "  if (fence === undefined) return sql`1 = 1`;",
    replace: "  return sql`1 = 1`;",
  },
  {
    name: "a claim that raises nothing",
    file: "core/database/claim.ts",
    find: `\${claimed.generation} = \${generation} AND \${claimed.token} < \${token})\`;`,
    replace: `\${claimed.generation} = \${generation} AND \${claimed.token} < 0)\`;`,
  },
  {
    name: "a claim that lowers",
    file: "core/database/claim.ts",
    find: `AND \${claimed.token} < \${token})\`;`,
    replace: `AND \${claimed.token} <> \${token})\`;`,
  },
  {
    name: "a late claim that is not refused",
    file: "core/database/claim.ts",
    find: "  if (isEqual && (row.owner === null || asText(row.owner) === ownerOf(fence))) return;",
    replace: "  return;",
  },
  {
    name: "a fence that is claimed at the write alone",
    file: "core/stores/sql/inventory/index.ts",
    find: `const results = await database.batch(claimAndRead(database.dialect, fence));
  checkClaim(fence, results.at(-1)?.rows ?? []);`,
    replace: "",
  },
  {
    name: "a claim that is never sent",
    file: "core/stores/sql/inventory/apply.ts",
    find: "return fence && !claimed.has(fence) ? [claim(database.dialect, fence)] : [];",
    replace: "return [];",
  },
  {
    name: "no operation id",
    file: "core/stores/sql/inventory/statements.ts",
    find: `SELECT s.sku, s.seq, \${operationId}, \${payloadHash(attempt)}`,
    replace: `SELECT s.sku, s.seq, \${attempt.mark}, \${payloadHash(attempt)}`,
  },
  {
    name: "an operation id for any change",
    file: "core/stores/sql/inventory/apply.ts",
    find: "if (!sameBytes(row.payload_hash as Uint8Array, payloadHash(operation))) {",
    replace: "if (sameBytes(new Uint8Array(), payloadHash(operation))) {",
  },
  {
    name: "a decrement without its condition",
    file: "core/stores/sql/inventory/statements.ts",
    find: `sql\`on_hand >= \${quantity} AND \${mayChange(dialect, attempt)}\``,
    replace: "mayChange(dialect, attempt)",
  },
  {
    name: "a refusal while units are there",
    file: "core/stores/sql/inventory/statements.ts",
    find: `sql\`on_hand < \${quantity} AND NOT EXISTS (\${expired})\``,
    replace: "sql`1 = 1`",
  },
  {
    name: "an expired reservation that is confirmed",
    file: "core/stores/sql/inventory/statements.ts",
    find: `sql\`\${isOpen(attempt)} AND expires_at > \${now}\``,
    replace: "isOpen(attempt)",
  },
  {
    name: "reservations that expire at any time",
    file: "core/stores/sql/inventory/statements.ts",
    find: `      WHERE sku = \${sku} AND expires_at <= \${now}\`,
    sql\`
      UPDATE lockstep_stock`,
    replace: `      WHERE sku = \${sku}\`,
    sql\`
      UPDATE lockstep_stock`,
  },
  {
    name: "a repetition that hides a lost answer",
    file: "core/lock/retry.ts",
    find: "if (lost === undefined || !tellsNothing) throw error;",
    replace: "throw error;",
  },
  {
    name: "a batch that forgets what is recorded",
    file: "core/inventory/plan.ts",
    find: "const known = new Map(start.recorded);",
    replace: "const known = new Map<string, PriorResult>();",
  },
  {
    name: "records of any epoch",
    file: "core/stores/sql/journal/append.ts",
    find: `SELECT epoch FROM lockstep_run
        WHERE run_id = \${runId} AND epoch = \${epoch} AND status = 'running' \${forShare}),`,
    replace: `SELECT \${epoch} FROM lockstep_run
        WHERE run_id = \${runId} \${forShare}),`,
  },
  {
    name: "an end that overtakes a cancellation",
    file: "core/stores/sql/journal/finish.ts",
    find: 'status === "completed" ? sql`cancelled > 0` : sql`1 = 0`',
    replace: "sql`1 = 0`",
  },
  {
    name: "a recorded step that is executed again",
    file: "core/steps/execution.ts",
    find: "if (final === undefined) return this.#live(command, work);",
    replace: "if (final !== null) return this.#live(command, work);",
  },
  {
    name: "undo after the attempt",
    file: "core/steps/attempt.ts",
    find: `      this.#step.undo !== undefined && (await this.#execution.effects.of(this.#step)) === "not-done"`,
    replace: "      false",
  },
  {
    name: "an interrupted step that is started again",
    file: "core/steps/attempt.ts",
    find: "if (step.atMostOnce && isInterrupted) {",
    replace: `if (step.atMostOnce && isInterrupted && history.attempt("started", number + 1)) {`,
  },
  {
    name: "a start that is recorded after the call",
    file: "core/steps/attempt.ts",
    find: `    if (!transacted && (await this.#isStartRecorded())) await this.#recordStart();
`,
    replace: "",
  },
  {
    name: "a step of a transaction that is not recorded with it",
    file: "core/stores/sql/journal/transactional-step.ts",
    find: "  const results = await commitWith(tx, large, insert);",
    replace: `  await tx.commit([]);
  const results = await context.database.batch(insert);`,
  },
];

/** Makes this thread load the mutated source. To be called before the product is loaded. */
export function plant(mutant: Mutant): void {
  const { href } = fileOf(mutant);
  const source = mutated(mutant);
  registerHooks({
    load: (url, context, nextLoad) => {
      const loaded = nextLoad(url, context);
      return url === href ? { ...loaded, source } : loaded;
    },
  });
}
