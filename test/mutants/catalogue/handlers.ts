import { mutantsOf } from "../mutant.ts";

const QUEUE = ["test/functions/queue.test.ts"];
const STOCK_QUEUE = ["test/functions/stock-queue.test.ts"];
const LAMBDA = ["test/functions/lambda.test.ts"];
const SCHEDULE = ["test/functions/schedule.test.ts"];
const HTTP = ["test/functions/http.server.test.ts"];
const HTTP_STOCK = ["test/functions/http-stock.server.test.ts"];
const POWERTOOLS = ["test/functions/powertools.server.test.ts"];
const WORKER = ["test/functions/worker.process.test.ts"];

export const HANDLERS = [
  ...mutantsOf("functions/lambda/queue/batch.ts", QUEUE, [
    {
      name: "a retried message that counts as done",
      find: `if (disposition.kind === "retry") return this.#retry(record, disposition);`,
      replace: "",
    },
    {
      name: "poison that was not handed over and counts as done",
      find: `this.#tell({ type: "hook-failed", record, error: failure });
      return this.#retry(record, retry("error", 0, failure));`,
      replace: `this.#tell({ type: "hook-failed", record, error: failure });
      this.#done.add(record);
      return undefined;`,
    },
    {
      name: "poison without a hook that counts as done",
      find: "if (!poison?.to) return this.#leaveToRedrive(record);",
      replace: `if (!poison?.to) {
      this.#done.add(record);
      return undefined;
    }`,
    },
    {
      name: "messages behind a retried one on a FIFO queue that are processed",
      find: "if (ordered) ahead = redelivery;",
      replace: "if (!ordered) ahead = redelivery;",
    },
    {
      name: "work that is begun in the last moment",
      find: "if (this.#deadline.remaining() < MIN_WORK_TIME)",
      replace: "if (this.#deadline.remaining() < -MIN_WORK_TIME)",
    },
    {
      name: "hanging work that takes the answers of its batch with it",
      find: "await withinInvocation(this.#deadline, this.#options.reserve * part, work, over);",
      replace:
        "await withinInvocation(this.#deadline, 1e6 + this.#options.reserve * part, work, over);",
    },
    {
      name: "groups of a standard queue that are taken for those of a FIFO queue",
      find: "const ordered = records.some(isFifo);",
      replace:
        "const ordered = records.every((record) => isFifo(record) || groupIdOf(record) !== undefined);",
    },
    {
      name: "a failed chunk that fails the batch",
      find: `return chunk.map(() => () => retry("error", 0, error));`,
      replace: "throw error;",
    },
  ]),
  ...mutantsOf("functions/lambda/queue/disposition.ts", QUEUE, [
    {
      name: "messages under contention that use up their receives",
      find: "const backoff = Math.min(growing, MAX_BACKOFF);",
      replace: "const backoff = Math.min(growing, 1);",
    },
    {
      name: "a message of a parked run that comes back before the run is due",
      find: "Math.max(jittered, wakeIn / 1_000)",
      replace: "Math.max(jittered, 0 * wakeIn)",
    },
  ]),
  ...mutantsOf("functions/lambda/queue/queue-handler.ts", QUEUE, [
    {
      name: "a failed run whose message is done without the poison hook",
      find: "return isPoison ? poison(error) : DONE;",
      replace: "return isPoison && !poison ? poison(error) : DONE;",
      tests: [...QUEUE, "test/functions/dead-letters.test.ts"],
    },
    {
      name: "a message whose run another process executes and that is done",
      find: `if (outcome.status === "busy") return retry("busy");`,
      replace: `if (outcome.status === "busy") return DONE;`,
    },
    {
      name: "a parked run on a FIFO queue that is left to a sweep",
      find: `if (parked === "leave" && !isFifo(record)) return DONE;`,
      replace: `if (parked === "leave") return DONE;`,
    },
    {
      name: "a reused order id that is retried for ever",
      find: `new Set(["INPUT_CONFLICT", "INVALID"`,
      replace: `new Set(["INVALID"`,
    },
    {
      name: "an outage of the journal that is poison",
      find: `return isPermanent(error) ? poison(error) : retry("error", 0, error);`,
      replace: "return isPermanent(error) ? poison(error) : poison(error);",
    },
    {
      name: "a run per delivery",
      find: "const own = workflow.namesRuns ? undefined : record.messageId;",
      replace: "const own = workflow.namesRuns ? undefined : record.receiptHandle;",
    },
  ]),
  ...mutantsOf("functions/lambda/queue/stock-handler.ts", STOCK_QUEUE, [
    {
      name: "an order id of another order that is done",
      find: `if (outcome === "conflict") return poison(operationConflict(order.orderId));`,
      replace: `if (outcome === "conflict") return operationConflict ? DONE : poison(order);`,
    },
    {
      name: "an order whose result was not reported and that is done",
      find: `return DONE;
    } catch (error) {
      return retry("error", 0, error);`,
      replace: `return DONE;
    } catch {
      return DONE;`,
    },
    {
      name: "a busy sku that is poison",
      find: "if (error instanceof InventoryError) return poison(error);",
      replace: "if (error instanceof Error || InventoryError) return poison(error);",
    },
    {
      name: "a late holder that is reported as a fault",
      find: `hasCode(error, "LOCK_TIMEOUT", "TOO_MANY_WAITERS", "FENCED_OUT", "LOCK_LOST");`,
      replace: `hasCode(error, "LOCK_TIMEOUT", "TOO_MANY_WAITERS");`,
    },
  ]),
  ...mutantsOf("functions/invocation/run-locked.ts", LAMBDA, [
    {
      name: "a handler that is begun in the last second",
      find: "if (spare <= 0) {",
      replace: "if (spare <= -1e6) {",
    },
    {
      name: "a wait that leaves no time for the work",
      find: "const waiting = { wait: Math.min(wait, spare), signal };",
      replace: "const waiting = { wait, signal };",
    },
    {
      name: "a handler that fails and keeps its lock",
      find: "if (error !== over) await release(held, end);",
      replace: "",
    },
    {
      name: "a handler that has outlived its lock and responds",
      find: `if ((await release(held, end)) === "released") return result;`,
      replace: "if (await release(held, end)) return result;",
    },
    {
      name: "a handler whose store was closed under it and responds",
      find: "if (closed) throw closed;",
      replace: "",
    },
    {
      name: "a response that waits for a store which does not answer",
      find: "const limit = deadline(end.remaining() / 2, noAnswer);",
      replace: "const limit = deadline(1e6 + end.remaining(), noAnswer);",
    },
    {
      name: "a lock that outlasts its invocation",
      find: "this.#scope = deadline(end.remaining(), () => this.#invocationEnded(), lock.signal);",
      replace: "this.#scope = deadline(1e6, () => this.#invocationEnded(), lock.signal);",
    },
  ]),
  ...mutantsOf("functions/invocation/invocation.ts", LAMBDA, [
    {
      name: "an invocation without its reserve",
      find: "context.getRemainingTimeInMillis() - reserve",
      replace: "context.getRemainingTimeInMillis() - 0 * reserve",
      tests: [...LAMBDA, ...QUEUE, ...SCHEDULE],
    },
  ]),
  ...mutantsOf("functions/lambda/schedule/schedule-handler.ts", SCHEDULE, [
    {
      name: "a run per event of a slot",
      find: "return new Date(Math.floor(at / every) * every);",
      replace: "return new Date(at + 0 * every);",
    },
    {
      name: "a slot that did not start and that Lambda does not repeat",
      find: "if (isUnstarted) throw",
      replace: 'if (isUnstarted && id === "") throw',
    },
  ]),
  ...mutantsOf(
    "functions/lambda/secret.ts",
    ["test/functions/secret.test.ts"],
    [
      {
        name: "a rotated secret that closes the store under running work",
        find: "setTimeout(close, LONGEST_INVOCATION).unref();",
        replace: "close();",
      },
    ],
  ),
  ...mutantsOf(
    "functions/cloudflare/lockstep-object.ts",
    ["test/cloudflare/object.process.test.ts"],
    [
      {
        name: "a fork in a Durable Object that sets no alarm",
        find: "commits && [...before, ...queries].some(",
        replace: "commits && queries.some(",
      },
    ],
  ),
  ...mutantsOf("functions/lambda/schedule/sweep-handler.ts", SCHEDULE, [
    {
      name: "a sweep that is for runs alone while any are due",
      find: "const RUNS_ALONE = 4 / 5;",
      replace: "const RUNS_ALONE = 4;",
    },
    {
      name: "a sweep that begins runs without time for them",
      find: "while (limits.deadline.remaining() >= MIN_WORK_TIME) {",
      replace: "while (limits.deadline.remaining() >= -1e6) {",
    },
    {
      name: "a sweep that takes one run again and again",
      find: "if (staysDue(outcome) && !(await hasContinued(runId, part))) seen.add(runId);",
      replace: "void [staysDue, hasContinued, part];",
    },
    {
      name: "a sweep that ends with the first refused run",
      find: `counts.refused += 1;
      seen.add(runId);
      onError(runId, error);`,
      replace: "throw error;",
    },
    {
      name: "a sweep that hides an outage",
      find: `for (const one of all) if (one.status === "rejected") throw one.reason;`,
      replace: "void all;",
    },
  ]),
  ...mutantsOf("functions/http/problem.ts", HTTP_STOCK, [
    {
      name: "a key of another change that is a 409",
      find: "OPERATION_CONFLICT: [422, undefined],",
      replace: "OPERATION_CONFLICT: [409, undefined],",
    },
    {
      name: "a late holder that is told to try again",
      find: `FENCED_OUT: [409, "a later holder has the lock; nothing has changed"],`,
      replace: `FENCED_OUT: [503, "a later holder has the lock; nothing has changed", RETRY_SOON],`,
    },
  ]),
  ...mutantsOf("functions/http/routes/stock.ts", HTTP_STOCK, [
    {
      name: "a sealed fence that is dropped",
      find: "const fence = await fenceOf(headers, secret);",
      replace: "const fence = (await fenceOf(headers, secret)) && undefined;",
    },
    {
      name: "a replay that is not marked",
      find: `replayed ? { "Idempotent-Replayed": "true" } : {};
  const more = { sku`,
      replace: `replayed ? {} : {};
  const more = { sku`,
    },
    {
      name: "a sale of nothing that is a 200",
      find: `if (outcome === "applied") return { status: 200, headers, body: { ...more, outcome } };`,
      replace: "if (outcome) return { status: 200, headers, body: { ...more, outcome } };",
    },
  ]),
  ...mutantsOf("functions/http/inputs.ts", HTTP_STOCK, [
    {
      name: "a change without a key",
      find: "if (header === null) {",
      replace: "if (header === null) return crypto.randomUUID();\n  if (header === undefined) {",
    },
    {
      name: "a key of two joined headers",
      find: `if (key === header && key.includes(",")) throw invalid("has a comma; quote the key");`,
      replace: "",
    },
  ]),
  ...mutantsOf("functions/http/auth.ts", HTTP, [
    {
      name: "a request that no authorizer of the gateway has checked",
      find: `if (members.length === 0 && typeof userArn !== "string") return "unauthenticated";`,
      replace: "",
      tests: ["test/functions/http-handler.test.ts"],
    },
  ]),
  ...mutantsOf("functions/powertools/journal-records.ts", POWERTOOLS, [
    {
      name: "a late result that overwrites another caller's",
      find: "run: { runId, epoch: claimed.epoch }",
      replace: `run: {
        runId,
        get epoch() {
          return claimed.epoch + 1n;
        },
      }`,
    },
    {
      name: "another payload under the same key",
      find: "      { idempotencyKey, payloadHash },\n",
      replace: "      { idempotencyKey, payloadHash: undefined },\n",
    },
    {
      name: "a late failure that frees the record of the next function",
      find: "if (held && held.silent > 0 &&",
      replace: "if (held && held.silent < 0 &&",
    },
    {
      name: "a late result under the claim of the next function",
      find: "ofCall?.get(key) ?? this.#held.get(key)",
      replace: "this.#held.get(key)",
    },
    {
      name: "a function that has failed and never runs again",
      find: `{ status: "failed", value, keep: 0, compensated: "unclear" }`,
      replace: `{ status: "failed", value, keep: 1e9, compensated: "unclear" }`,
    },
  ]),
  ...mutantsOf("functions/worker/worker.ts", WORKER, [
    {
      name: "a worker that never aborts its runs",
      find: `this.#stop.abort(new Error("the worker has stopped"));`,
      replace: "",
      only: "aborts",
    },
    {
      name: "a worker whose runs wait for their locks in its slots",
      find: "lockWait: LOCK_WAIT }",
      replace: "lockWait: 1e6 * LOCK_WAIT }",
      only: "hot lock",
    },
  ]),
];
