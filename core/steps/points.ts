import type { Database } from "../database/sql.ts";
import type { Journal } from "../journal/journal.ts";
import type { LockStore } from "../lock/lock.ts";

/**
 * Called with "append:before" before a call of that name, and with "append:after" when it has settled; calls of a
 * transaction are named "tx.packet" and "tx.commit".
 *
 * What it throws, the call rejects with: as if the request was lost, or the answer.
 */
export type OnPoint = (point: string) => void | Promise<void>;

/** The same store with points around all that reaches it, to be killed, frozen or cut off there. */
export function pointed<T extends Database | Journal | LockStore>(store: T, onPoint: OnPoint): T {
  return around(store, onPoint, (name) => {
    return typeof name === "symbol" || name === "close" || name === "transaction"
      ? undefined
      : name;
  });
}

/** What a call's points are called, if it has any. */
type PointName = (name: string | symbol) => string | undefined;

function around<T extends object>(target: T, onPoint: OnPoint, pointName: PointName): T {
  const get = (_: T, name: string | symbol) => {
    const value: unknown = Reflect.get(target, name);
    if (typeof value !== "function") return value;
    const call = (...given: readonly unknown[]) => {
      const args = given.map((arg) => aroundBody(arg, onPoint));
      return Reflect.apply(value, target, args);
    };
    const point = pointName(name);
    if (point === undefined) return call;
    return async (...given: readonly unknown[]) => {
      await onPoint(`${point}:before`);
      try {
        return aroundGift(await call(...given), onPoint);
      } finally {
        await onPoint(`${point}:after`);
      }
    };
  };
  return new Proxy(target, { get });
}

/** What a body is given reaches the store too. */
function aroundBody(arg: unknown, onPoint: OnPoint): unknown {
  if (typeof arg !== "function") return arg;
  return (...given: readonly unknown[]) => arg(...given.map((one) => aroundGift(one, onPoint)));
}

/** A transaction, or a lock; anything else stays as it is. */
function aroundGift(value: unknown, onPoint: OnPoint): unknown {
  if (typeof value !== "object" || value === null) return value;
  if ("commit" in value) return around(value, onPoint, (name) => `tx.${String(name)}`);
  if ("unlock" in value) return around(value, onPoint, ofLock);
  return value;
}

function ofLock(name: string | symbol): string | undefined {
  if (name === Symbol.asyncDispose) return "unlock";
  return name === "unlock" || name === "ensure" ? name : undefined;
}
