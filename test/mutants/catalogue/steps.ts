import { mutantsOf } from "../mutant.ts";

const STEPS = ["test/steps/memory.test.ts"];
const REOPENED = ["test/steps/reopened.test.ts"];
const SQL_STEPS = ["test/steps/sqlite.process.test.ts"];

export const STEPS_ROOM = [
  ...mutantsOf("core/steps/context.ts", REOPENED, [
    {
      name: "a patch that a retry applies to what was done without it",
      find: "(history.isReplaying || history.unreached.size > 0)",
      replace: "history.isReplaying",
    },
  ]),
  ...mutantsOf("core/steps/execution.ts", REOPENED, [
    {
      name: "results that a retry uses again in the order of the calls",
      find: "this.#repeats.run(position,",
      replace: "this.#repeats.run(-position,",
    },
  ]),
  ...mutantsOf("core/steps/step-effects.ts", REOPENED, [
    {
      name: "an unknown effect that a cancelled retry forgets",
      find: "if (isStep && (await mayHaveHadEffect(superseded, this.#errorOf))) isUnclear = true;",
      replace: "",
    },
  ]),
  ...mutantsOf("core/steps/effect.ts", REOPENED, [
    {
      name: "an unknown effect that a retry forgets",
      find: `if (await mayHaveHadEffect(history.supersededOf(key), errorOf)) return "unknown";`,
      replace: "",
    },
    {
      name: "an unknown effect that its undo does not settle",
      find: `if (outcome === "ok") isUnknown = false;`,
      replace: `if (outcome === "ok") isUnknown ||= false;`,
    },
  ]),
  ...mutantsOf("core/steps/step.ts", REOPENED, [
    {
      name: "an undo that is tried once, as its step is",
      find: "retry: isOnce ? {} : step.retry,",
      replace: "retry: step.retry,",
    },
  ]),
  ...mutantsOf("core/steps/history.ts", REOPENED, [
    {
      name: "slow code that counts as changed at the end of an invocation",
      find: "this.#isHurried = isShort && !this.#hasEnded;",
      replace: "",
    },
  ]),
  ...mutantsOf("core/steps/attempt.ts", STEPS, [
    {
      name: "a step that is attempted without its lock",
      find: "const locks = lock && (await this.#acquire(lock));",
      replace: "const locks = lock && undefined;",
    },
    {
      name: "a step that keeps its lock",
      find: "await locks?.[Symbol.asyncDispose]();",
      replace: "",
    },
    {
      name: "a step whose lock was lost and that is recorded as done",
      find: `locks?.assertHeld();
      return await`,
      replace: "return await",
      tests: ["test/steps/edge-cases.test.ts"],
    },
    {
      name: "a step that goes on when its lock is lost",
      find: "deadline(timeout, late, this.#execution.attemptSignal, locks?.signal);",
      replace: "deadline(timeout, late, this.#execution.attemptSignal);",
      tests: ["test/steps/edge-cases.test.ts"],
    },
    {
      name: "a step without its timeout",
      find: "deadline(timeout, late, this.#execution.attemptSignal, locks?.signal);",
      replace: "deadline(timeout * 1e6, late, this.#execution.attemptSignal, locks?.signal);",
    },
    {
      name: "a step that begins without time for it",
      find: `if (execution.deadline.remaining() <= step.budget) throw new Suspension("deadline", 0);`,
      replace: "void Suspension;",
    },
    {
      name: "a busy lock that counts as a failed attempt",
      find: "if (!hasCode(error, ...TRANSIENT)) throw",
      replace: "if (TRANSIENT.length > 0) throw",
    },
    {
      name: "a failed attempt that is not recorded",
      find: `key: attemptKey(step.key, "retry", number),
    });`,
      replace: `key: attemptKey(step.key, "retry", 1_000 + number),
    });`,
    },
    {
      name: "an interrupted attempt whose start is not recorded",
      find: "if (isInterrupted && this.#mayHaveEffect) await this.#recordStart();",
      replace: "void isInterrupted;",
    },
    {
      name: "a pause between attempts that a signal ends",
      find: `await execution.pause("retry-delay", retryIn - execution.since(last.at));`,
      replace: "void [retryIn, last];",
      tests: ["test/steps/edge-cases.test.ts"],
    },
    {
      name: "a step at most once whose start is not recorded",
      find: "if (this.#step.atMostOnce) return true;",
      replace: "",
      tests: ["test/steps/edge-cases.test.ts"],
    },
    {
      name: "a late holder's transaction that is repeated for ever",
      find: `isTransactionRefused(cause) || hasCode(cause, "FENCED_OUT", "FENCE_INVALID");`,
      replace: `isTransactionRefused(cause) || hasCode(cause, "FENCE_INVALID");`,
      tests: SQL_STEPS,
    },
    {
      name: "a transaction without the fences of its locks",
      find: "const fences = [...(locks?.fences.values() ?? [])];",
      replace: "const fences = [...(locks?.fences.values() ?? [])].slice(1);",
      tests: SQL_STEPS,
    },
    {
      name: "a result that is not checked",
      find: "const value = output ? await validate(what, output, result) : result;",
      replace: "const value = output && validate ? result : result;",
    },
  ]),
  ...mutantsOf("core/steps/retry.ts", STEPS, [
    {
      name: "attempts without an end",
      find: "if (attempt >= attempts || isTerminal(error)) return undefined;",
      replace: "if (attempt >= 50 * attempts || isTerminal(error)) return undefined;",
    },
    {
      name: "a terminal error that is tried again",
      find: "if (attempt >= attempts || isTerminal(error)) return undefined;",
      replace: "if (attempt >= attempts || isTerminal(undefined)) return undefined;",
    },
    {
      name: "a late fence that ends the step",
      find: `if (hasCode(error, "FENCED_OUT", "LOCK_LOST")) return false;`,
      replace: "void hasCode;",
      tests: [...STEPS, ...SQL_STEPS],
    },
    {
      name: "a retry that does not wait as long as it is told to",
      find: "if (error instanceof RetryAfterError) return error.after;",
      replace: "if (error instanceof RetryAfterError) return 0;",
    },
    {
      name: "pauses that do not grow",
      find: "factor ** (attempt - 1)",
      replace: "factor ** 0",
      tests: ["test/steps/retry.test.ts"],
    },
  ]),
  ...mutantsOf("core/steps/effect.ts", STEPS, [
    {
      name: "an effect that is believed not to be there",
      find: `if (await mayHaveEffect(started, ended, errorOf)) return "unknown";`,
      replace: "void mayHaveEffect;",
    },
    {
      name: "an interrupted attempt that is believed to be without effect",
      find: "if (!ended || (started && started.epoch !== ended.epoch)) return true;",
      replace: "if (!ended) return true;",
      tests: ["test/steps/edge-cases.test.ts"],
    },
    {
      name: "an attempt under way that is believed to be without effect",
      find: `if (history.hasBegun(key)) return "unknown";`,
      replace: "",
      tests: [...STEPS, "test/steps/edge-cases.test.ts"],
    },
  ]),
  ...mutantsOf("core/steps/execute.ts", STEPS, [
    {
      name: "undos in the order of their steps",
      find: `for (const one of undoable) parts.push((await undo(execution, one)) ? "yes" : "no");`,
      replace: `for (const one of undoable.toReversed())
    parts.push((await undo(execution, one)) ? "yes" : "no");`,
    },
    {
      name: "a failed undo that counts as done",
      find: `return record.outcome === "ok";`,
      replace: `return record.outcome !== "started";`,
    },
    {
      name: "an unclear effect that counts as undone",
      find: `return worstOf(isUnclear ? [...parts, "unclear"] : parts);`,
      replace: "return worstOf(parts);",
    },
    {
      name: "undos before the children have ended",
      find: "const parts: Compensation[] = [await execution.perform(() => context.cancelChildren())];",
      replace: `const parts: Compensation[] = [];
  queueMicrotask(() => void execution.perform(() => context.cancelChildren()).catch(() => {}));`,
    },
    {
      name: "a failure that is not recorded before its undos",
      find: `await execution.recordFailure(isUnclear ? { ...failure, effect: "unknown" } : failure);`,
      replace: "",
    },
    {
      name: "a new history that forgets its undos",
      find: "if (undoable.length > 0 && !dropUndos) {",
      replace: "if (undoable.length > 0 && dropUndos === undefined) {",
    },
    {
      name: "a cancelled run that has failed",
      find: `const status = isCancelled ? "cancelled" : "failed";`,
      replace: `const status = isCancelled ? "failed" : "failed";`,
    },
    {
      name: "a cancelled run whose code goes on and completes",
      find: "const failure = execution.recordedFailure ?? execution.cancellation ?? stop ?? error;",
      replace: "const failure = execution.recordedFailure ?? stop ?? error;",
    },
  ]),
  ...mutantsOf("core/steps/context.ts", STEPS, [
    {
      name: "a signal that two waits receive, one of them repeated",
      find: "this.#markReceived(signal, execution.history.earlierResult(command)?.record);",
      replace: "",
    },
  ]),
  ...mutantsOf("core/steps/step-effects.ts", STEPS, [
    {
      name: "a step that a lost process may have begun, and that counts as not begun",
      find: "isUnrecorded && claimed.takenOver && !hasWritten",
      replace: "isUnrecorded && claimed.crashes > 0 && !hasWritten",
    },
  ]),
  ...mutantsOf("core/steps/execution.ts", STEPS, [
    {
      name: "an execution that goes on after its lease",
      find: "if (lease.remaining() <= 0) return new EngineFailure(new StaleRunError(key));",
      replace: "void [lease, key];",
      tests: [...STEPS, "test/steps/timing.test.ts", "test/steps/edge-cases.test.ts"],
    },
    {
      name: "a lost lease that does not abort the steps",
      find: "lease.onEnd(onEnd);",
      replace: "",
      tests: [...STEPS, "test/steps/timing.test.ts", "test/steps/edge-cases.test.ts"],
    },
    {
      name: "a deadline that does not park the run",
      find: "const cancel = Number.isFinite(left) ? after(left, onStop) : () => {};",
      replace: "const cancel = Number.isFinite(left) ? after(1e6 * left, onStop) : () => {};",
    },
    {
      name: "a cancellation that does not abort the attempts",
      find: "this.#attempts.abort(runCancelled(this.runId));",
      replace: "",
    },
    {
      name: "a cancelled run that begins steps",
      find: "if (this.isCancelled) return runCancelled(this.runId);",
      replace: "",
    },
    {
      name: "a run that outlasts its timeout",
      find: "return this.timeLeft < 0 ? runTimeout(this.runId, this.workflow.timeout) : undefined;",
      replace: "return this.timeLeft < 0 && !runTimeout ? undefined : undefined;",
    },
    {
      name: "a parked run that sleeps beyond its timeout",
      find: "return { ...park, wakeIn: Math.min(wakeIn, left + 1), children };",
      replace: "return { ...park, wakeIn: left < 0 ? left : wakeIn, children };",
    },
    {
      name: "a worker that drains and begins steps",
      find: "if (this.#options.drain?.aborted) throw new Suspension(reason, wakeIn);",
      replace: "void [reason, wakeIn];",
      tests: [...STEPS, "test/functions/worker.process.test.ts"],
      only: "drain|stopping|park",
    },
    {
      name: "undos that a cancellation aborts",
      find: "return this.#isUndoing ? this.signal : this.#attempts.signal;",
      replace: "return this.#attempts.signal;",
    },
  ]),
  ...mutantsOf("core/steps/step-effects.ts", STEPS, [
    {
      name: "undos that begin with the first step",
      find: "const latestFirst = undoable.toReversed().sort((a, b) => positionOf(b) - positionOf(a));",
      replace: "const latestFirst = undoable.toSorted((a, b) => positionOf(a) - positionOf(b));",
    },
    {
      name: "an undo of a step that was not done",
      find: `if (effect !== "not-done" && step.undo) undoable.push({ step, effect });`,
      replace: `if (step.undo) undoable.push({ step, effect: effect as "done" });`,
    },
  ]),
  ...mutantsOf("core/steps/execution.ts", STEPS, [
    {
      name: "a transaction that was aborted during its commit and that counts as not done",
      find: `if (signal.aborted && hasCode(error, "UNKNOWN_OUTCOME")) return this.#committed(step, signal);`,
      replace: "void this.#committed;",
      tests: ["test/faults/steps.all.server.test.ts"],
      survives: "the record of the failure is written once, and finds the record of the commit",
    },
    {
      name: "an undone step that is repeated under its old key",
      find: "generation = this.history.generationOf(step)): string {",
      replace: "generation = 0 * this.history.generationOf(step)): string {",
    },
  ]),
  ...mutantsOf("core/steps/history.ts", STEPS, [
    {
      name: "a step that has become another kind",
      find: "if (known && known.kind !== kind) {",
      replace: "if (known && known.kind === undefined) {",
    },
    {
      name: "a step with other arguments",
      find: "if (known && known.argsHash !== argsHash) {",
      replace: "if (known && known.argsHash === argsHash && known.kind !== kind) {",
    },
    {
      name: "two steps of one key",
      find: "if (this.#matched.has(key)) {",
      replace: "if (this.#matched.has(`${key}?`)) {",
      tests: [...STEPS, "test/steps/misuse.test.ts"],
    },
    {
      name: "new steps before the end of the replay",
      find: "if (!this.isReplaying) return;",
      replace: "if (what !== undefined) return;",
      tests: [...STEPS, "test/steps/edge-cases.test.ts", "test/steps/concurrency.test.ts"],
    },
    {
      name: "answers in the order in which the code asks",
      find: `const waiter = this.#waiting.get(this.#undelivered[0] ?? "");`,
      replace: "const [waiter] = this.#waiting.values();",
      tests: [...STEPS, "test/steps/concurrency.test.ts"],
    },
    {
      name: "an undone step whose result is used again",
      find: "if (isRepeated) this.#earlierResults.delete(step);",
      replace: "if (isRepeated && kind === undefined) this.#earlierResults.delete(step);",
    },
  ]),
  ...mutantsOf("core/steps/run-executor.ts", STEPS, [
    {
      name: "a run of another input under the same id",
      find: `if (claimed.kind === "conflict") throw inputConflict(runId);`,
      replace: `if (claimed.kind === "conflict") return busy(0);`,
      tests: ["test/functions/queue.test.ts"],
    },
    {
      name: "a lease that is renewed after the end of its run",
      find: `// Renewals end first: a late one must not take back the run.
    renewal.lease.end("released");`,
      replace: "",
      tests: [...STEPS, "test/steps/edge-cases.test.ts"],
      survives: "the journal renews no run that is parked or has ended",
    },
    {
      name: "a run that crashes every worker",
      find: "if (crashes >= workflow.maxCrashes + blocks) {",
      replace: "if (crashes >= 1e9 + blocks) {",
    },
    {
      name: "a renewal that does not tell of a cancellation",
      find: "if (renewed?.cancelled) renewal.execution?.cancel();",
      replace: "",
    },
    {
      name: "a completion that was refused and is reported",
      find: `if (answer === "cancelled") return this.#undoCancelled(options);`,
      replace: "void this.#undoCancelled;",
    },
    {
      name: "a lost run that is reported as a failure",
      find: "if (!(error instanceof StaleRunError)) throw error;",
      replace: "if (error !== undefined) throw error;",
    },
    {
      name: "pauses of a blocked run that do not grow",
      find: "FIRST_BLOCK * 2 ** (blocks - 1)",
      replace: "FIRST_BLOCK",
      tests: ["test/steps/blocked.test.ts", ...STEPS],
    },
    {
      name: "a run of a workflow that this process does not know and that is not given back",
      find: `await this.#park(key, claimed, { reason: "deadline", wakeIn: 0 });
      throw`,
      replace: "throw",
      tests: ["test/steps/edge-cases.test.ts"],
    },
  ]),
  ...mutantsOf("core/steps/runtime.ts", STEPS, [
    {
      name: "a completed run that is retried",
      find: `if (status === "completed") {
      throw`,
      replace: `if (status === undefined) {
      throw`,
    },
  ]),
  ...mutantsOf("core/steps/reopen.ts", STEPS, [
    {
      name: "a retry that uses the result of an undone step",
      find: "return new Set([...cause, ...undoneSteps(records), ...cancelled]);",
      replace: "return new Set([...cause, ...cancelled]);",
    },
    {
      name: "a retry of a run whose undo has failed",
      find: "if (failedUndos(records).length > 0) {",
      replace: "if (failedUndos(records).length > 1_000) {",
    },
  ]),
  ...mutantsOf("core/steps/fork.ts", STEPS, [
    {
      name: "a fork with the result of the step from which it begins",
      find: "results.slice(0, end < 0 ? results.length : end)",
      replace: "results.slice(0, end < 0 ? results.length : end + 1)",
    },
    {
      name: "a fork of a run that is being undone",
      find: "if (isUndoing) {",
      replace: 'if (isUndoing && from === "") {',
    },
  ]),
  ...mutantsOf("core/steps/idempotency.ts", STEPS, [
    {
      name: "one idempotency key for all histories of a run",
      find: "return part === 1 ? key : `${key}@0@${part}`;",
      replace: "return part > 0 ? key : `${key}@0@${part}`;",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/transactional-step.ts", SQL_STEPS, [
    {
      name: "a body that runs although its step is recorded",
      find: `const before = await begin(context, tx, step);
      if (before) return before;`,
      replace: "await begin(context, tx, step).then((before) => void before);",
      tests: ["test/journal/sqlite.process.test.ts"],
    },
    {
      name: "a step's transaction that does not claim its fences",
      find: "statements: claimAndRead(dialect, fence) }));",
      replace: "statements: claimAndRead(dialect, fence).slice(-1) }));",
      tests: ["test/journal/sqlite.process.test.ts"],
    },
    {
      name: "a body that ignores a failed statement and is committed",
      find: "if (failure() !== undefined) throw ignored(failure());",
      replace: "void ignored;",
      tests: ["test/journal/sqlite.process.test.ts"],
    },
    {
      name: "a body that has outlasted its limit and is committed",
      find: `checkLimit(address, limit);
    return record;`,
      replace: "return record;",
      tests: ["test/journal/sqlite.process.test.ts"],
      survives:
        "the limit has to end in the turn of the event loop in which the body does; the commit has the same limit",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/step-transaction.ts", SQL_STEPS, [
    {
      name: "a step that commits its own transaction",
      find: `throw new TypeError("a step cannot commit its transaction; the step's return commits it");`,
      replace: "return tx.commit([]);",
      tests: ["test/journal/sqlite.process.test.ts"],
    },
    {
      name: "a statement in a step that ends the transaction",
      find: `if (!ALLOWED.test(text.replace(BLANK, ""))) {`,
      replace: `if (text === "") {`,
      tests: ["test/journal/sqlite.process.test.ts"],
    },
  ]),
];
