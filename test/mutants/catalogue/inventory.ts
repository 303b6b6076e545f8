import { mutantsOf } from "../mutant.ts";

/** Stock on a store that plans on a snapshot. */
const PLANNED = ["test/inventory/etcd.server.test.ts"];
const STOCK = ["test/inventory/sqlite.process.test.ts"];

export const INVENTORY = [
  ...mutantsOf("core/inventory/plan.ts", PLANNED, [
    {
      name: "an operation id twice in one batch that is applied twice",
      find: "known.set(operationId, { hash, outcome, remaining });",
      replace: "",
      only: "batch",
    },
    {
      name: "an operation id that answers for another change",
      find: "if (prior && !sameBytes(prior.hash, hash)) {",
      replace: "if (prior && sameBytes(prior.hash, new Uint8Array(hash.length + 1))) {",
    },
    {
      name: "a batch that looks at the stock before its first order for each of them",
      find: "stock = next;",
      replace: "",
      only: "batch",
    },
    {
      name: "a short batch that does not look for expired reservations",
      find: `const isShort = planned.some(({ outcome }) => outcome === "sold-out");`,
      replace: "const isShort = false;",
      only: "expired",
    },
  ]),
  ...mutantsOf("core/inventory/transitions.ts", PLANNED, [
    {
      name: "a sale below zero",
      find: "if (onHand < 0)",
      replace: "if (onHand < -1)",
    },
    {
      name: "a confirmation of an expired reservation",
      find: "if (!reservation.isOpen)",
      replace: "if (!reservation.isSetAside)",
      only: "expired",
    },
    {
      name: "a cancelled reservation that goes back on hand twice",
      find: "if (!reservation.isSetAside)",
      replace: "if (reservation.made === undefined)",
      only: "reserv",
    },
    {
      name: "a reservation that is closed under another sku",
      find: `made.outcome === "applied" && made.sku === sku)`,
      replace: `made.outcome === "applied" && sku !== "")`,
      only: "reserv",
    },
    {
      name: "a reservation that counts as sold",
      find: "reserve: take(({ reserved }, quantity) => ({ reserved: reserved + quantity })),",
      replace: "reserve: take(({ sold }, quantity) => ({ sold: sold + quantity })),",
      only: "reserv",
    },
    {
      name: "a restock that forgets what was supplied",
      find: "{ onHand: onHand + quantity, supplied: supplied + quantity }",
      replace: "{ onHand: onHand + quantity, supplied }",
    },
  ]),
  ...mutantsOf("core/inventory/operation.ts", STOCK, [
    {
      name: "a fence of another sku",
      find: "if (fence !== undefined) checkFence(fence, stockLock(sku));",
      replace: "if (fence !== undefined) checkFence(fence, fence.resource ?? stockLock(sku));",
      only: "fence",
    },
    {
      name: "a quantity of nothing",
      find: `checkWhole("quantity", quantity, kind === "set" ? 0 : 1, MAX_QUANTITY);`,
      replace: `checkWhole("quantity", quantity, 0, MAX_QUANTITY);`,
    },
    {
      name: "a payload without its quantity",
      find: "JSON.stringify([kind, sku, quantity, reservation])",
      replace: "JSON.stringify([kind, sku, reservation, quantity === undefined])",
    },
    {
      name: "a payload without its kind",
      find: "JSON.stringify([kind, sku, quantity, reservation])",
      replace: "JSON.stringify([kind === undefined, sku, quantity, reservation])",
    },
    {
      name: "a payload without its sku",
      find: "JSON.stringify([kind, sku, quantity, reservation])",
      replace: "JSON.stringify([kind, sku === undefined, quantity, reservation])",
    },
    {
      name: "a batch without a limit",
      find: "if (orders.length === 0 || orders.length > MAX_BATCH_ORDERS) {",
      replace: "if (orders.length === 0) {",
    },
  ]),
  ...mutantsOf("core/inventory/operation-batcher.ts", STOCK, [
    {
      name: "an aborted decrement that is applied later",
      find: "if (this.#remove(pending)) return signal?.reason;",
      replace: "if (pending) return signal?.reason;",
      only: "abort",
    },
    {
      name: "a decrement that was sent and is reported as cancelled",
      find: "return new UnknownOutcomeError(this.#backend.address, what, signal?.reason);",
      replace: "return [signal?.reason, UnknownOutcomeError, what][0];",
      only: "abort",
    },
    {
      name: "two holders in one batch",
      find: `\${fence ?? ""}\\0\${fence ? fenceOwner(fence) : ""}\`;`,
      replace: `\${fence && fenceOwner(fence) ? "" : ""}\`;`,
    },
    {
      name: "an operation id of another change that is answered in a batch",
      find: `if (outcome === "conflict") throw operationConflict(operation.operationId);`,
      replace: "void operationConflict;",
    },
    {
      name: "a call that has aborted before and is applied",
      find: "signal?.throwIfAborted();",
      replace: "",
      only: "abort",
    },
  ]),
  ...mutantsOf("core/lock/keyed-batcher.ts", STOCK, [
    {
      name: "a group in which each caller gets the result of the first one",
      find: "for (const [i, { resolve }] of group.entries()) resolve(results[i] as R);",
      replace: "for (const { resolve } of group) resolve(results[0] as R);",
      tests: ["test/lock/keyed-batcher.test.ts"],
    },
    {
      name: "a failed group whose callers wait for ever",
      find: "for (const { reject } of group) reject(error);",
      replace: "group[0]?.reject(error);",
      tests: ["test/lock/keyed-batcher.test.ts"],
    },
  ]),
];
