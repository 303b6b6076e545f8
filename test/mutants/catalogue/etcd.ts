import { mutantsOf } from "../mutant.ts";

const STORE = ["test/stores/etcd/store.server.test.ts"];
const CONFORMANCE = ["test/stores/etcd.server.test.ts"];
const MUTEX_FAULTS = ["test/stores/etcd/mutex-faults.server.test.ts"];
const ELECTION = ["test/stores/etcd/election.server.test.ts"];
const STOCK = ["test/inventory/etcd.server.test.ts"];

export const ETCD = [
  ...mutantsOf("core/lock/session-queue.ts", STORE, [
    {
      name: "a held entry that nobody watches",
      find: `this.#guard();
    this.lease.onEnd`,
      replace: "this.lease.onEnd",
    },
    {
      name: "a lost lock that keeps its place",
      find: "this.lease.onEnd(() => this.#leave(0).catch(() => {}));",
      replace: "",
    },
    {
      name: "a lock without renewals that starts with what its wait has left",
      find: "if (elapsedSince(session.granted.sentAt) < session.ttl / 10) return true;",
      replace: "if (elapsedSince(session.granted.sentAt) >= 0) return true;",
      tests: ["test/stores/zookeeper/store.server.test.ts"],
      only: "whole ttl",
    },
    {
      name: "a lock that is released while it moves, and moves all the same",
      find: `if (this.#leaving) {
      own.release();
      return undefined;
    }`,
      replace: "",
    },
    {
      name: "a lock that cannot be held for longer than its session",
      find: "return this.#move(Math.max(ttl, session.ttl), signal, span);",
      replace: "return session.restart(signal);",
      tests: ["test/stores/zookeeper/store.server.test.ts"],
      only: "held for longer than its ttl",
    },
  ]),
  ...mutantsOf("core/lock/session-pool.ts", STORE, [
    {
      name: "a session about to end that gets another lock",
      find: "return !this.#isRetired && this.session.remaining() > this.session.ttl / 3;",
      replace: "return !this.#isRetired;",
      tests: STORE,
      only: "less than a third",
    },
    {
      name: "close that leaves the sessions open",
      find: "for (const session of this.#open) this.#end(session);",
      replace: "",
      tests: [...STORE, ...CONFORMANCE],
      only: "close|exit",
    },
  ]),
  ...mutantsOf("core/lock/leadership.ts", ELECTION, [
    {
      name: "a leader whose entry is gone and that has resigned",
      find: "const remaining = this.signal.aborted ? 0 : this.#options.session.remaining();",
      replace: "const remaining = this.#options.session.remaining();",
    },
    {
      name: "a leadership that outlives its session",
      find: "const unlink = link([this.#options.session.signal], controller);",
      replace: "const unlink = link([], controller);",
      tests: [...ELECTION, ...MUTEX_FAULTS],
    },
    {
      name: "a leadership that outlives its entry",
      find: "const stopGuard = entry.guard((loss) => controller.abort(loss));",
      replace: "const stopGuard = entry.guard(() => {});",
      tests: [...ELECTION, ...MUTEX_FAULTS],
    },
    {
      name: "a resignation that leaves the entry",
      find: "const wasOurs = (remaining > 0 && handOver(entry)) || (await this.#leave(entry, remaining));",
      replace: "const wasOurs = (remaining > 0 && handOver(entry)) || remaining > 0;",
    },
  ]),
  ...mutantsOf("core/lock/election.ts", ELECTION, [
    {
      name: "an aborted candidate that stays in the queue",
      find: `await this.#leadership.decline(entry);
      throw error;`,
      replace: "throw error;",
    },
    {
      name: "a candidate that proclaims after its leadership",
      find: "if (!entry || this.signal.aborted) throw this.#leadership.released();",
      replace: "if (!entry) throw this.#leadership.released();",
    },
    {
      name: "a campaign during a resignation that does not wait for it",
      find: "await this.#leadership.settled();",
      replace: "",
    },
    {
      name: "a candidate that resumes with its old value",
      find: "if (entry.isAdopted) await this.#write(entry, value);",
      replace: "",
    },
    {
      name: "a look at a leadership that does not look at the clock",
      find: 'if (remaining <= 0) throw new SessionExpiredError(this.key ?? "");',
      replace: "",
      tests: ELECTION,
    },
  ]),
  ...mutantsOf(
    "core/stores/etcd/locks/enter.ts",
    ["test/stores/etcd/mutex.server.test.ts"],
    [
      {
        name: "an attempt that takes a waiting key of its session for the lock",
        find: "return isFirst ? entered : undefined;",
        replace: "return isFirst || keys ? entered : undefined;",
        only: "attempt",
      },
    ],
  ),
  ...mutantsOf("core/stores/etcd/locks/enter.ts", STORE, [
    {
      name: "a lock for any waiter in the queue",
      find: "kvs: queue.kvs.filter(({ createRevision }) => createRevision < revision),",
      replace:
        "kvs: queue.kvs.filter(({ createRevision }) => createRevision < revision - revision),",
      tests: CONFORMANCE,
      only: "one holder at a time|lose no update",
    },
    {
      name: "a try that enters a queue",
      find: "const empty = keys.map(({ queue }) => isAbsent({ prefix: queue }));",
      replace: "const empty = keys.map(({ key }) => isAbsent(key));",
      tests: CONFORMANCE,
      only: "one holder at a time",
    },
    {
      name: "an entry of unknown outcome that stays",
      find: `onDoubt();
      await this.withdraw();`,
      replace: "onDoubt();",
      tests: MUTEX_FAULTS,
      survives:
        "the session of the entry is retired, and removes what is left when the request gives it back",
    },
  ]),
  ...mutantsOf("core/stores/etcd/locks/queue-entry.ts", MUTEX_FAULTS, [
    {
      name: "a guard that ends with a refused read",
      find: `if (hasCode(error, "STORE_REFUSED")) return true;`,
      replace: `if (hasCode(error, "STORE_CLOSED")) return true;`,
      only: "notices",
    },
  ]),
  ...mutantsOf("core/stores/etcd/locks/queue-entry.ts", CONFORMANCE, [
    {
      name: "a move to another lease without the create revision",
      find: "this.#etcd.txn({ when: this.isOurs(), do: moves }, limit);",
      replace: "this.#etcd.txn({ when: [], do: moves }, limit);",
      tests: STORE,
    },
    {
      name: "a waiter that is elected when its predecessor gives up",
      find: "if (!left.some(({ createRevision }) => createRevision === old)) return left;",
      replace: "if (!left.some(({ createRevision }) => createRevision === old)) return [];",
      tests: MUTEX_FAULTS,
    },
    {
      name: "a waiter that has lost its key and is elected",
      find: "if (!seen.succeeded) throw this.#expired();",
      replace: "",
      tests: MUTEX_FAULTS,
    },
    {
      name: "a waiter that waits for later waiters",
      find: "createdBy: this.token - 1n,",
      replace: "createdBy: this.token + 1_000_000n,",
      only: "waiter|20 contenders",
    },
    {
      name: "several keys of which none is removed when one is gone",
      find: "const otherwise = keys.length > 1 ? keys.map((key) => this.#removal(key)) : [];",
      replace: "const otherwise = keys.slice(0, 0).map((key) => this.#removal(key));",
      tests: CONFORMANCE,
      only: "the rest of a set",
    },
  ]),
  ...mutantsOf("core/stores/etcd/locks/lock-queues.ts", CONFORMANCE, [
    {
      name: "fences without the generation",
      find: "const generation = toGeneration(entry.read);",
      replace: "const generation = 0 * toGeneration(entry.read);",
      only: "generation",
    },
    {
      name: "an operator's release that removes the next holder",
      find: "const removal = { when: [isCreated(key, createRevision)], do: [remove(key)] };",
      replace:
        "const removal = { when: [], do: [remove(key)] };\n    void [isCreated, createRevision];",
      tests: STORE,
      only: "operator",
    },
    {
      name: "a generation that is raised twice at once",
      find: "when: [unchanged],",
      replace: "when: [unchanged].slice(1),",
      tests: STORE,
      only: "at once get one each",
    },
    {
      name: "whenFree that resolves while a waiter takes over",
      find: "if (!kvs.some(({ key }) => isIn(queue, key))) return;",
      replace: "if (!kvs.some(({ key }) => isIn(queue, key)) || kvs.length < 2) return;",
      only: "whenFree",
    },
  ]),
  ...mutantsOf(
    "core/stores/etcd/locks/lease.ts",
    ["test/stores/etcd/session.server.test.ts"],
    [
      {
        name: "a lease whose validity counts from the answer",
        find: `const sentAt = instant();
  const ttl = await etcd.keepAlive(id, signal);`,
        replace: `const ttl = await etcd.keepAlive(id, signal);
  const sentAt = instant();`,
        only: "counts its ttl",
      },
    ],
  ),
  ...mutantsOf("core/stores/etcd/client/guarded.ts", STORE, [
    {
      name: "a guarded write without the lock's revision",
      find: "{ when: [isCreated(key, fence.token)], do: ops }",
      replace: "{ when: [isCreated(key, fence.token)].slice(1), do: ops }",
      tests: ["test/functions/edge.server.test.ts"],
      only: "refused after its lock",
    },
    {
      name: "a refused guarded write that is reported as done",
      find: "if (!answer.succeeded) throw new FencedOutError(fence, String(fence));",
      replace: "void FencedOutError;",
      tests: ["test/functions/edge.server.test.ts"],
      only: "refused after its lock",
    },
  ]),
  ...mutantsOf("core/stores/etcd/inventory/change.ts", STOCK, [
    {
      name: "a plan that is written whatever the stock is by now",
      find: "isUnchanged(keys.stock(sku), snapshot.stockKey),",
      replace: "...[isUnchanged(keys.stock(sku), snapshot.stockKey)].slice(1),",
    },
    {
      name: "a plan of a holder whose fence has changed",
      find: "...(fence ? isFenceUnchanged(keys, fence, snapshot.fence) : []),",
      replace: "...(fence ? isFenceUnchanged(keys, fence, snapshot.fence).slice(2) : []),",
      only: "fence|late",
    },
    {
      name: "an operation id that another sku has used and that is applied",
      find: "...first.map(({ operation }) => isAbsent(keys.operation(operation.operationId))),",
      replace:
        "...first.slice(0, 0).map(({ operation }) => isAbsent(keys.operation(operation.operationId))),",
    },
    {
      name: "a claim that etcd's stock does not raise",
      find: "state: [...state, ...(fence ? raiseClaim(keys, fence, snapshot.fence) : [])],",
      replace:
        "state: [...state, ...(fence ? raiseClaim(keys, fence, snapshot.fence).slice(1) : [])],",
      only: "fence|late",
    },
  ]),
  ...mutantsOf("core/stores/etcd/inventory/turn.ts", STOCK, [
    {
      name: "turns in etcd that no other client waits for",
      find: "return Math.min(Number(turnKey.value), LONGEST_TURN);",
      replace: "return Math.min(0 * Number(turnKey.value), LONGEST_TURN);",
      only: "turns",
    },
  ]),
  ...mutantsOf("core/stores/etcd/inventory/expiry.ts", STOCK, [
    {
      name: "open reservations that are put back",
      find: "return lease === 0n && (kvs[i - 1]?.key ?? last) !== keys.open(sku, reservationIn(key));",
      replace: 'return lease === 0n && (kvs[i - 1]?.key ?? last) !== "";',
      only: "reserv",
    },
    {
      name: "expired reservations that two clients put back",
      find: "when: [isUnchanged(keys.stock(sku), stockKey)],",
      replace: "when: [isUnchanged(keys.stock(sku), stockKey)].slice(1),",
      only: "put back late",
    },
  ]),
  ...mutantsOf("core/stores/etcd/inventory/fence.ts", STOCK, [
    {
      name: "a holder whose lock is gone and that sells",
      find: "if (isLockGone) throw new FencedOutError(fence, String(fence));",
      replace: "void isLockGone;",
      only: "fence",
    },
  ]),
];
