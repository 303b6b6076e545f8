import { mutantsOf } from "../mutant.ts";

const JOURNAL = ["test/journal/sqlite.process.test.ts"];
const SHORT_RUNS = ["test/journal/short-runs.process.test.ts"];

export const JOURNALS = [
  ...mutantsOf("core/stores/sql/journal/claim.ts", SHORT_RUNS, [
    {
      name: "a new run that forgets a signal",
      find: "hasFirstEpoch(row, first.salt) && asNumber(row.signals) === 0;",
      replace: "hasFirstEpoch(row, first.salt);",
    },
    {
      name: "an old run that is taken for a new one",
      find: "hasFirstEpoch(row, first.salt) && asNumber(row.signals) === 0;",
      replace: "asNumber(row.signals) === 0;",
    },
    {
      name: "a claim of a run whose input was replaced",
      find: ` AND input_hash = \${inputHash}\`;`,
      replace: "`;",
    },
  ]),
  ...mutantsOf(
    "core/stores/sql/journal/order.ts",
    ["test/steps/concurrency.test.ts"],
    [
      {
        name: "records of one millisecond in any order",
        find: "return bytesOf(a.record.key) < bytesOf(b.record.key) ? -1 : 1;",
        replace: "return -1;",
      },
    ],
  ),
  ...mutantsOf(
    "core/journal/key-part.ts",
    ["test/steps/keys.test.ts"],
    [
      {
        name: "a slash that ends a part of a key",
        find: `char === "/" ? "%2F" : "%25"`,
        replace: `char === "/" ? "/" : "%25"`,
      },
    ],
  ),
  ...mutantsOf("core/stores/sql/journal/claim.ts", JOURNAL, [
    {
      name: "a held run that is claimed",
      find: `AND \${condition} AND due_at <= \${now} AND claimed_by <> \${mark}\`;`,
      replace: `AND \${condition} AND claimed_by <> \${mark}\`;`,
      only: "claim|parked",
    },
    {
      name: "a late claim of the call that had the run last",
      find: `AND due_at <= \${now} AND claimed_by <> \${mark}\`;`,
      replace: `AND due_at <= \${now} AND \${mark} <> ''\`;`,
      tests: [...JOURNAL, "test/faults/journal.all.server.test.ts"],
    },
    {
      name: "a claim in the same epoch",
      find: "status = 'running', epoch = epoch + 1, owner",
      replace: "status = 'running', epoch = epoch, owner",
    },
    {
      name: "a crash that is not counted",
      find: "ELSE crashes + 1 END,",
      replace: "ELSE crashes END,",
      only: "claim",
    },
    {
      name: "a takeover that is not told",
      find: "WHEN status = 'running' THEN 1",
      replace: "WHEN 1 = 0 THEN 1",
      only: "claim",
    },
    {
      name: "a lost process that the next park makes forgotten",
      find: `ELSE \${TAKEN_OVER} END`,
      replace: "ELSE 0 END",
      only: "claim",
    },
    {
      name: "a run of another workflow or input that is claimed",
      find: `if (isConflict(row)) return { kind: "conflict" };`,
      replace: "",
      only: "claim|conflict",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/append.ts", JOURNAL, [
    {
      name: "a holder that has lost its run and reads a record",
      find: `const isOurs = row && asBigInt(row.run_epoch) === run.epoch && asText(row.status) === "running";`,
      replace: `const isOurs = row && (asBigInt(row.run_epoch) === run.epoch || asText(row.status) === "running");`,
      only: "lost its run",
    },
    {
      name: "a record before an earlier one",
      find: `CASE WHEN \${lastAt} < \${now} THEN \${now} ELSE \${lastAt} + 1 END`,
      replace: `CASE WHEN \${lastAt} < \${now} THEN \${now} ELSE \${now} END`,
      only: "record|ordered",
    },
  ]),
  ...mutantsOf(
    "core/stores/sql/journal/append.ts",
    ["test/stores/postgres/functions.server.test.ts"],
    [
      {
        name: "a claim by a process that cannot record",
        find: "if (!hasFunctions) return sql`1 = 1`;",
        replace: "if (!hasFunctions || hasFunctions) return sql`1 = 1`;",
      },
    ],
  ),
  ...mutantsOf("core/stores/sql/journal/start-keyed.ts", JOURNAL, [
    {
      name: "a debounced start that joins a cancelled run",
      find: "isDebounced(row) && !isCancelled(row)",
      replace: "isDebounced(row)",
      only: "debounce",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/finish.ts", JOURNAL, [
    {
      name: "an end whose parent hears nothing",
      find: "    ...signalParents(dialect, sorted),\n",
      replace: "",
      only: "a parent|its parent|parent",
    },
    {
      name: "an end of a child that is taken for a run without a parent",
      find: "AND parent_run IS NULL AND ${isAccepted}`;",
      replace: "AND ${isAccepted}`;",
      only: "parent",
    },
    {
      name: "a refused completion that is reported as one",
      find: `return ended === "parked" ? "cancelled" : "ended";`,
      replace: `return ended === "parked" ? "ended" : "ended";`,
      only: "cancel",
    },
    {
      name: "an end that is never forgotten",
      find: "timeIn(now, keep)",
      replace: "timeIn(now, 1e9 * keep)",
      only: "retention|purge",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/lease.ts", JOURNAL, [
    {
      name: "a run that is woken for a lock although it does not wait",
      find: `const isWaiting = sql\`waits_for = \${lock} AND status = 'parked'\`;`,
      replace: `const isWaiting = sql\`waits_for = \${lock}\`;`,
      only: "woken|wakes",
      survives: "a claim clears the lock that a run waits for: parked runs alone have one",
    },
    {
      name: "several wakes of one release that wake several runs",
      find: "if (asNumber(row.is_due) === 1) return true;",
      replace: "if (asNumber(row.is_due) === 1) return undefined;",
      only: "wakes",
    },
    {
      name: "a write that an earlier holder takes for its own",
      find: "const status = row && asBigInt(row.epoch) === run.epoch ? asText(row.status) : undefined;",
      replace: "const status = row ? asText(row.status) : undefined;",
      only: "lost its run",
    },
    {
      name: "a cancelled run that stays blocked until its pause is over",
      find: `due_at = CASE WHEN cancelled = 1 THEN \${now} ELSE \${timeIn(now, retryIn)} END`,
      replace: `due_at = \${timeIn(now, retryIn)}`,
      only: "blocked|cancel",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/signals.ts", JOURNAL, [
    {
      name: "a signal that arrives twice",
      find: `WHERE run_id = \${runId} AND \${IS_OPEN} AND NOT \${isKnown}\`,`,
      replace: `WHERE run_id = \${runId} AND \${IS_OPEN} AND (NOT \${isKnown} OR 1 = 1)\`,`,
      tests: [...JOURNAL, "test/steps/sqlite.process.test.ts"],
      only: "signal|duplicate|dedupe",
    },
    {
      name: "a signal to a run that has ended",
      find: `return isOpen(asText(row.status) as RunStatus) ? undefined : "ended";`,
      replace: `return isOpen(asText(row.status) as RunStatus) ? undefined : undefined;`,
      only: "ended|cancel|signal",
    },
    {
      name: "a signal that wakes nobody",
      find: `WHEN lockstep_run.status IN ('parked', 'blocked')`,
      replace: `WHEN lockstep_run.status IN ('blocked')`,
      only: "signal",
    },
    {
      name: "a cancellation that wakes nobody",
      find: `SET due_at = CASE WHEN cancelled = 0 THEN \${dueAtAfterSignal(now)} ELSE due_at END,`,
      replace: "SET due_at = due_at,",
      only: "cancel",
    },
    {
      name: "a cancellation of children that are detached",
      find: `WHERE parent_run = \${runId} AND detached = 0 AND`,
      replace: `WHERE parent_run = \${runId} AND`,
      only: "children",
    },
    {
      name: "a parent that is not reopened by a child which ends once more",
      find: "AND parent.status IN ('failed', 'cancelled')",
      replace: "AND parent.status IN ('failed', 'cancelled') AND 1 = 0",
      only: "once more",
    },
    {
      name: "a completed parent that is reopened",
      find: "AND parent.status IN ('failed', 'cancelled')",
      replace: "AND parent.status IN ('failed', 'cancelled', 'completed')",
      only: "once more",
    },
    {
      name: "an end of a child that an earlier holder signals",
      find: "child.epoch = ${ofChild(",
      replace: "child.epoch >= ${ofChild(",
      only: "parent|lost its run",
      survives:
        "the child has this status once its holder has signalled it, and the parent takes an end once",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/start.ts", JOURNAL, [
    {
      name: "children of a parent that has lost its run",
      find: "if (held?.rows.length === 0) throw new StaleRunError(run);",
      replace: "void [held, StaleRunError];",
      only: "lost its run|start of several",
    },
    {
      name: "a run that is started with another input",
      find: "const isSame = asText(row.workflow) === workflow && asText(row.input_hash) === inputHash;",
      replace:
        "const isSame = asText(row.workflow) === workflow || asText(row.input_hash) === inputHash;",
      only: "start of several",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/reopen.ts", JOURNAL, [
    {
      name: "an open run that is reopened",
      find: "AND status NOT IN ('running', 'parked')",
      replace: "",
      only: "reopened",
    },
    {
      name: "a run that is reopened in the same epoch",
      find: "epoch = lockstep_run.epoch + 1`;",
      replace: "epoch = lockstep_run.epoch`;",
      only: "reopened|once more",
      survives: "the next claim raises the epoch before anything is written",
    },
    {
      name: "a retry of the undos that takes the cancellation back",
      find: "isRetry ? restart",
      replace: "isRetry !== undefined ? restart",
      only: "reopened",
    },
    {
      name: "a retry of a blocked run that takes its cancellation back",
      find: "CASE WHEN status = 'blocked' THEN cancelled ELSE 0 END",
      replace: "0",
      only: "reopened",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/fork.ts", JOURNAL, [
    {
      name: "a fork of an origin that has changed",
      find: `o.epoch = \${origin.epoch} AND`,
      replace: `o.epoch <> -1 AND`,
      only: "fork",
    },
    {
      name: "a fork of another origin under the same id",
      find: `if (!isSame) return "conflict";`,
      replace: `if (!isSame) return "forked";`,
      only: "fork",
    },
    {
      name: "a fork without the signals",
      find: "...chunksOf(signals).map((numbers, i) => copySignals(origin, runId, numbers, i)),",
      replace:
        "...chunksOf(signals.slice(0, 0)).map((numbers, i) => copySignals(origin, runId, numbers, i)),",
      only: "fork",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/purge.ts", JOURNAL, [
    {
      name: "a purge of runs that are kept",
      find: `WHERE expires_at <= \${now} AND \${which}`,
      replace: `WHERE expires_at IS NOT NULL AND \${which}`,
      only: "retention|purge",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/limits.ts", JOURNAL, [
    {
      name: "a limit that counts runs whose lease has expired",
      find: `AND status = 'running' AND due_at > \${now}
      GROUP BY`,
      replace: `AND status = 'running' AND \${now} > 0
      GROUP BY`,
      only: "limits",
    },
    {
      name: "a rate that claims do not use up",
      find: "const statements = rate ? [",
      replace: "const statements = rate && ratePerKey ? [",
      only: "limits",
    },
  ]),
  ...mutantsOf("core/journal/limits.ts", JOURNAL, [
    {
      name: "one run more than the queue may execute",
      find: "return this.#total >= concurrency ||",
      replace: "return this.#total > concurrency ||",
      tests: ["test/journal/limits.test.ts"],
    },
    {
      name: "one run more than a key may have executed",
      find: "this.#ofKey(key) >= perKey);",
      replace: "this.#ofKey(key) > perKey);",
      tests: ["test/journal/limits.test.ts"],
    },
    {
      name: "a rate per key that holds back all keys",
      find: "const ofKey = key === undefined ? 0 : waitOf(ratePerKey, this.#keyAheadBy(key));",
      replace: "const ofKey = key === undefined ? 0 : waitOf(ratePerKey, this.#aheadBy);",
      tests: ["test/journal/limits.test.ts"],
    },
  ]),
  ...mutantsOf("core/journal/turn-order.ts", JOURNAL, [
    {
      name: "a queue in which one key has all of the turns",
      find: "a.round - b.round ||",
      replace: "",
      only: "turns|priority",
    },
    {
      name: "a queue without priorities",
      find: "b.run.priority - a.run.priority ||",
      replace: "",
      only: "turns|priority",
    },
  ]),
];
