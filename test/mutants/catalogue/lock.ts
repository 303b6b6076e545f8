import { mutantsOf } from "../mutant.ts";

const MEMORY = ["test/stores/memory.test.ts"];

export const LOCK = [
  ...mutantsOf(
    "core/lock/lease.ts",
    ["test/lock/lease.test.ts"],
    [
      {
        name: "a renewal that is due after a whole ttl",
        find: "return ttl / 3 - elapsedSince(sentAt);",
        replace: "return ttl - elapsedSince(sentAt);",
      },
      {
        name: "a renewal that is due after its predecessor's answer",
        find: "return ttl / 3 - elapsedSince(sentAt);",
        replace: "return sentAt && ttl / 3;",
      },
      {
        name: "an expiry without a timer",
        find: "this.#stopTimer = after(Math.ceil(this.remaining()), check, { idle: true });",
        replace: "void check;",
      },
      {
        name: "a lease that outlives the store's report of another owner",
        find: `if (granted === undefined) this.end("taken");`,
        replace: "",
      },
      {
        name: "a late renewal that reports an ended lease as renewed",
        find: "if (this.#ended || !granted) return undefined;",
        replace: "if (!granted) return undefined;",
      },
      {
        name: "a renewal that shortens the lease",
        find: "if (ttl - driftMargin(ttl) - elapsedSince(sentAt) <= this.#untilExpiry()) return;",
        replace: "",
      },
      {
        name: "a lease without maxHold",
        find: "return Math.min(this.#untilExpiry(now), this.#untilMaxHold(now));",
        replace: "return this.#untilExpiry(now);",
      },
      {
        name: "a renewal beyond maxHold",
        find: "const ttl = Math.min(wanted, padded(this.#untilMaxHold()));",
        replace: "const ttl = wanted;",
      },
      {
        name: "a renewal that may take longer than the lease",
        find: "const span = Math.min(this.#untilExpiry(), attemptSpan(this.#options.ttl));",
        replace: "const span = attemptSpan(10 * this.#options.ttl);",
      },
      {
        name: "no other renewal after a failed one",
        find: `this.#options.notify?.({ type: "renewal-failed", names: this.#options.names, error });
      this.#renewIn(this.#untilRetry());`,
        replace: `this.#options.notify?.({ type: "renewal-failed", names: this.#options.names, error });`,
      },
      {
        name: "a retry of a renewal as late as a renewal",
        find: "return Math.min(this.#options.ttl / 10, this.remaining() / 3);",
        replace: "return this.#options.ttl / 3;",
      },
      {
        name: "an end that does not abort the signal",
        find: "this.#controller?.abort(this.#lost(why));",
        replace: "",
      },
      {
        name: "a signal that was read after the end and is not aborted",
        find: "if (this.#ended) this.#controller.abort(this.#lost(this.#ended));",
        replace: "",
      },
      {
        name: "ensure without a renewal",
        find: "if (this.remaining() < span) await this.#renew(span);",
        replace: "",
      },
      {
        name: "ensure that renews always",
        find: "if (this.remaining() < span) await this.#renew(span);",
        replace: "await this.#renew(span);",
      },
      {
        name: "ensure that asks for one ttl only",
        find: "const wanted = Math.max(ttl, padded(span) + ttl / 3);",
        replace: "const wanted = ttl;",
      },
      {
        name: "an end with the last of its reasons",
        find: `if (this.#ended) return;
    this.#ended = why;`,
        replace: "this.#ended = why;",
      },
      {
        name: "a loss that is not reported",
        find: `if (isLoss(why)) notify?.({ type: "lost", names, why });`,
        replace: "void [names, notify, isLoss(why)];",
        tests: ["test/lock/lease.test.ts", "test/lock/listener.test.ts"],
      },
    ],
  ),
  ...mutantsOf(
    "core/lock/attempts.ts",
    ["test/lock/claim.test.ts", "test/lock/release.test.ts", "test/lock/bounds.test.ts"],
    [
      {
        name: "a release that is not repeated",
        find: `if (!isOver && !hasCode(error, "STORE_REFUSED", "STORE_CLOSED")) return pause;`,
        replace: "void [pause, isOver, hasCode];",
      },
      {
        name: "a release after a lost answer that counts as a loss",
        find: "return wasHeld || (isAnswerLost && elapsedSince(startedAt) < remaining);",
        replace: "return wasHeld;",
        tests: [...MEMORY, "test/lock/release.test.ts"],
      },
      {
        name: "a release after a lost answer that counts as one after the expiry, too",
        find: "return wasHeld || (isAnswerLost && elapsedSince(startedAt) < remaining);",
        replace: "return wasHeld || isAnswerLost;",
      },
      {
        name: "a refused removal that counts as a lost answer",
        find: "if (!isCertain(error)) isAnswerLost = true;",
        replace: "isAnswerLost = true || isCertain(error);",
      },
      {
        name: "a release that a freeze uses up",
        find: "const wasHeld = await patience.during(attemptSpan(left), () => withinAttempt(drop, left));",
        replace: "const wasHeld = await patience.during(ttl, () => withinAttempt(drop, left));",
      },
      {
        name: "a release that goes on after the ttl",
        find: "const patience = new Patience(Math.min(ttl, LONGEST_CALL));",
        replace: "const patience = new Patience(Math.max(ttl, LONGEST_CALL));",
      },
      {
        name: "an abort that does not wait for the answer on its way",
        find: "cancel = afterAnswers(Math.min(span, GRACE), giveUp);",
        replace: "giveUp();",
      },
      {
        name: "one attempt that takes all of the time",
        find: "return Math.min(left, several, two, LONGEST_ATTEMPT);",
        replace: "return left + 0 * (several + two);",
      },
      {
        name: "claims that are repeated for ever",
        find: "if (elapsedSince(startedAt) >= Math.min(patience / 2, LONGEST_CALL)) return undefined;",
        replace: "",
      },
    ],
  ),
  ...mutantsOf(
    "core/lock/polling.ts",
    ["test/lock/polling.test.ts"],
    [
      {
        name: "a failed renewal that takes back the value of the next one",
        find: "if (next !== undefined && !wasInDoubt && isCertain(error)) this.#settle(this.#owner);",
        replace: "if (!wasInDoubt && isCertain(error)) this.#settle(this.#owner);",
        tests: ["test/lock/election.test.ts"],
      },
      {
        name: "a waiter that gives up when the store restarts",
        find: `if (!isAnswered || !hasCode(error, "STORE_UNAVAILABLE")) throw error;`,
        replace: "throw error;",
      },
      {
        name: "a first request that waits for a store that cannot be reached",
        find: `if (!isAnswered || !hasCode(error, "STORE_UNAVAILABLE")) throw error;`,
        replace: `if (!hasCode(error, "STORE_UNAVAILABLE")) throw error;`,
      },
      {
        name: "a wait that begins anew with each attempt",
        find: "const left = wait - elapsedSince(startedAt);",
        replace: "const left = startedAt && wait;",
      },
      {
        name: "a lock for a caller that has aborted",
        find: "if (hold.lease.remaining() > 0 && !signal.aborted) return hold;",
        replace: "if (hold.lease.remaining() > 0) return hold;",
        tests: ["test/lock/claim.test.ts"],
      },
      {
        name: "a release that leaves the claim at the store",
        find: `return (await this.#drop(left)) && left > 0 ? "released" : "was-lost";`,
        replace: `return left > 0 ? "released" : "was-lost";`,
        tests: MEMORY,
        only: "released|one holder at a time|unlock",
      },
      {
        name: "an expired lock that is reported as released",
        find: `return (await this.#drop(left)) && left > 0 ? "released" : "was-lost";`,
        replace: `return (await this.#drop(left)) ? "released" : "was-lost";`,
        tests: ["test/lock/release.test.ts"],
      },
      {
        name: "a lock that is believed until its release is answered",
        find: `lease.end(why);
    return (await this.#drop(left)) && left > 0 ? "released" : "was-lost";`,
        replace: `const isDropped = await this.#drop(left);
    lease.end(why);
    return isDropped && left > 0 ? "released" : "was-lost";`,
        tests: MEMORY,
        only: "unlock aborts the signal at once",
      },
      {
        name: "a release under the old text alone",
        find: "if (next === undefined) return await drop(owner, limit);",
        replace: "if (next !== null) return drop(owner, limit);",
        tests: MEMORY,
        only: "election",
      },
      {
        name: "a release under the new text alone",
        find: "return (await drop(next, limit)) || (await drop(owner, limit)) || (await drop(next, limit));",
        replace: "return drop(next, limit);",
        tests: MEMORY,
        only: "election",
      },
      {
        name: "a proclamation over one of unknown outcome",
        find: "while (this.#next) await lease.renewNow();",
        replace: "",
        tests: MEMORY,
        only: "election",
      },
      {
        name: "a waiter that does not hear of a release",
        find: "(name) => this.#claims.onRelease?.(name, () => this.#released.notify()) ?? [],",
        replace: "(name) => this.#claims.onRelease?.(name, () => {}) ?? [],",
      },
      {
        name: "a lost notice of a release that delays a waiter until the expiry",
        find: "return Math.min(expired, CHECK_EVERY * (0.5 + Math.random() / 2));",
        replace: "return expired;",
      },
      {
        name: "a subscription that outlives its request",
        find: "for (const subscription of this.#releases ?? []) subscription.stop();",
        replace: "",
      },
      {
        name: "a held lock that counts as free",
        find: "if (left <= 0) return;",
        replace: "if (left >= 0) return;",
        tests: MEMORY,
        only: "whenFree",
      },
    ],
  ),
  ...mutantsOf(
    "core/lock/retry.ts",
    ["test/lock/retry.test.ts"],
    [
      {
        name: "an abort that is reported as an outage",
        find: "if (isNotDone && signal?.aborted) throw signal.reason;",
        replace: "void isNotDone;",
      },
      {
        name: "pauses that use up no patience",
        find: "time.take(pause);",
        replace: "",
      },
      {
        name: "a freeze that uses up the patience",
        find: "return time.during(longest, async () => {",
        replace: "return time.during(LONGEST_CALL, async () => {",
      },
      {
        name: "an attempt that has only waited, and is not made again",
        find: "const hasWaited = isLate && error === bound?.reason;",
        replace: "const hasWaited = false;",
      },
      {
        name: "a refusal that hides an earlier lost answer",
        find: "const tellsNothing = error === signal?.reason || isCertain(error);",
        replace: "const tellsNothing = error === signal?.reason;",
      },
    ],
  ),
  ...mutantsOf(
    "core/lock/fence.ts",
    ["test/lock/fence.test.ts"],
    [
      {
        name: "fences that are compared by token alone",
        find: "if (a.generation !== b.generation) return a.generation < b.generation ? -1 : 1;",
        replace: "",
      },
      {
        name: "an order between fences of two resources",
        find: `if (a.resource !== b.resource) throw new TypeError("fences of different resources have no order");`,
        replace: "",
      },
      {
        name: "a forged fence that is accepted",
        find: "if (fenceOwner(fence) === undefined) {",
        replace: "if (fence === undefined) {",
      },
      {
        name: "a fence that is accepted for another resource",
        find: "if (fence.resource !== resource) {",
        replace: "if (resource === undefined) {",
      },
      {
        name: "a sealed fence whose seal is not compared",
        find: "if (!genuine)",
        replace: "if (genuine === undefined)",
      },
      {
        name: "a seal that loses the owner",
        find: `    decodeURIComponent(owner),
  );`,
        replace: `    "someone",
  );`,
      },
      {
        name: "a text of a fence that does not sort",
        find: `String(token).padStart(20, "0")`,
        replace: "String(token)",
      },
      {
        name: "a token beyond the range of the stores",
        find: "if (token < 0n || token > HIGHEST_TOKEN) {",
        replace: "if (token < 0n) {",
      },
      {
        name: "a short secret that is accepted",
        find: "if (byteLength(secret) < 16)",
        replace: "if (byteLength(secret) < 1)",
      },
    ],
  ),
  ...mutantsOf(
    "functions/telemetry/incident-records.ts",
    ["test/telemetry/incidents.test.ts"],
    [
      {
        name: "an incident that is not tried again",
        find: "count >= MOST_ATTEMPTS - 1",
        replace: "count >= 0",
      },
      {
        name: "a burst of incidents without a bound",
        find: "if (!incidents || this.#pending.length >= MOST_PENDING) return;",
        replace: "if (!incidents) return;",
      },
      {
        name: "an incident that takes the place of the newest one",
        find: "Math.min(...times)",
        replace: "Math.max(...times)",
        tests: MEMORY,
      },
      {
        name: "an incident whose write rejects",
        find: "text).catch(() => {});",
        replace: "text);",
      },
    ],
  ),
  ...mutantsOf("core/lock/store.ts", MEMORY, [
    {
      name: "a wait for a free lock that ends with the store's error",
      find: "limit.signal.throwIfAborted();\n      throw error;",
      replace: "throw error;",
      tests: ["test/lock/polling.test.ts"],
    },
    {
      name: "a list with the slots of incidents",
      find: ".filter((info) => !isIncidentSlot(info))",
      replace: "",
    },
    {
      name: "withLock that hides a loss which the release reveals",
      find: `if (answer === "was-lost" || lock.loss) throw`,
      replace: "if (lock.loss) throw",
      tests: [...MEMORY, "test/lock/release.test.ts"],
      only: "withLock",
    },
    {
      name: "withLock that hides a loss when the release fails",
      find: `if (answer === "was-lost" || lock.loss) throw`,
      replace: `if (answer === "was-lost") throw`,
      tests: ["test/lock/listener.test.ts"],
    },
    {
      name: "withLock that keeps the lock when its body fails",
      find: `await lock[Symbol.asyncDispose]();
      throw error;`,
      replace: "throw error;",
      only: "withLock",
    },
    {
      name: "close that does not wait for claims under way",
      find: "await atMost(underWay, this.#releaseAll());",
      replace: "void [underWay, this.#releaseAll()];",
      tests: ["test/lock/release.test.ts"],
    },
    {
      name: "close that waits for ever",
      find: "await atMost(underWay, this.#releaseAll());",
      replace: "void underWay;\n    await this.#releaseAll();",
      tests: ["test/lock/bounds.test.ts"],
    },
    {
      name: "close that keeps the locks",
      find: `for (const handle of this.#handles) handle.unlock("closed").catch(() => {});`,
      replace: "this.#handles.clear();",
      only: "close",
    },
    {
      name: "an operator's release whose fence is not compared",
      find: "if (holder !== undefined && fence === given) return;",
      replace: "if (holder !== undefined) return;",
      only: "release frees the lock",
    },
    {
      name: "a hold that comes too late and is not released",
      find: "if (isLate) void this.#track(releaseLate(acquiring).finally(leave));",
      replace: "if (isLate) void this.#track(acquiring.catch(() => {}).finally(leave));",
      tests: ["test/lock/bounds.test.ts"],
    },
    {
      name: "a busy lock that keeps the client's own queue",
      find: "else if (hold === undefined) leave();",
      replace: "",
      tests: ["test/lock/keyed-queue.test.ts"],
    },
    {
      name: "a wait that times out and keeps its places in the client's queues",
      find: `leave();
      if (error === TIMED_OUT) return undefined;`,
      replace: "if (error === TIMED_OUT) return undefined;",
      tests: ["test/lock/keyed-queue.test.ts"],
    },
    {
      name: "a lost lock that keeps other callers of its client waiting",
      find: "hold.lease.onEnd((why) => isLoss(why) && leave());",
      replace: "void isLoss;",
    },
    {
      name: "a release that outlasts the caller's deadline",
      find: "const left = Math.max(0, end?.remaining() ?? Number.POSITIVE_INFINITY);",
      replace: "const left = Math.max(1e9, end?.remaining() ?? Number.POSITIVE_INFINITY);",
      tests: ["test/lock/bounds.test.ts"],
    },
  ]),
  ...mutantsOf(
    "core/lock/lock-handle.ts",
    ["test/lock/bounds.test.ts"],
    [
      {
        name: "an ensure that outlasts the caller's deadline",
        find: `return this.#inTime("renewed", this.#hold.lease.ensure(span), LONGEST_ENSURE);`,
        replace: "return this.#hold.lease.ensure(span);",
      },
    ],
  ),
  ...mutantsOf(
    "core/lock/request.ts",
    ["test/lock/invocation.test.ts"],
    [
      {
        name: "several names that are taken in the caller's order",
        find: "[...new Set(names)].sort()",
        replace: "[...new Set(names)]",
        tests: MEMORY,
        only: "lockAll",
      },
      {
        name: "a wait beyond the end of the invocation",
        find: "wait: Math.min(wait, left),",
        replace: "wait,",
      },
      {
        name: "a lock of an invocation that is renewed",
        find: `renew: renew && options.ttl !== "invocation",`,
        replace: "renew,",
      },
      {
        name: "a lock of an invocation without a margin",
        find: "left + driftMargin(left) + INVOCATION_SKEW",
        replace: "left",
      },
    ],
  ),
  ...mutantsOf(
    "core/lock/keyed-queue.ts",
    ["test/lock/keyed-queue.test.ts"],
    [
      {
        name: "two callers of one client at the store at once",
        find: "if (this.#queues.has(name)) return false;",
        replace: "",
      },
      {
        name: "the last waiter of a client that comes first",
        find: "this.#queues.get(name)?.shift();",
        replace: "this.#queues.get(name)?.pop();",
      },
      {
        name: "an aborted waiter that gets its turn",
        find: "queue.splice(queue.indexOf(turn), 1);",
        replace: "",
      },
      {
        name: "waiters without a limit",
        find: "if (this.#waiting >= this.#limit)",
        replace: "if (this.#waiting < 0)",
        tests: ["test/lock/keyed-queue.test.ts", ...MEMORY],
        only: "limit|too many",
      },
      {
        name: "aborted waiters that count towards the limit",
        find: `const onAbort = () => {
        this.#waiting -= 1;`,
        replace: "const onAbort = () => {",
      },
    ],
  ),
  ...mutantsOf(
    "core/lock/wake-ups.ts",
    ["test/lock/wake-ups.test.ts"],
    [
      {
        name: "a client that wakes itself",
        find: "if (sender !== client) wake();",
        replace: "wake();",
      },
    ],
  ),
  ...mutantsOf("core/lock/election.ts", MEMORY, [
    {
      name: "an election that is closed as it is won, and stays won",
      find: `if (signal.aborted) {
      await this.#leadership.decline(entry);
      throw signal.reason;
    }`,
      replace: "",
      only: "election",
    },
    {
      name: "an observer that is told of the same leader twice",
      find: `if (last !== "none yet" && isSame(leader, last)) continue;`,
      replace: "void [isSame, last];",
      tests: ["test/lock/election.test.ts"],
    },
    {
      name: "two campaigns of one candidate that queue twice",
      find: "if (!this.signal.aborted) return this.proclaim(value);",
      replace: "",
      only: "election",
    },
  ]),
];
