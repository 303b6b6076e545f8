import { checkWhole } from "../lock/checks.ts";
import type { Drive } from "./drive.ts";
import { type AnyOptions, checkItemKeys, type Functions } from "./work.ts";
import type { LockedItems, MapFunction, MapOptions, TxScope } from "./workflow.ts";

type Perform = (
  name: string,
  key: string,
  options: AnyOptions,
  functions: Functions,
) => Promise<unknown>;

type AnyMapOptions = MapOptions<unknown, unknown> & Partial<LockedItems<unknown>>;

type AnyItemFunction = (item: unknown, scope: TxScope) => Promise<unknown>;

/** One step for each item, some of them at a time. */
export function mapItems(
  nameOf: (name: string) => string,
  drive: Drive,
  perform: Perform,
): MapFunction {
  const map = async (
    name: string,
    given: readonly unknown[],
    options: AnyMapOptions,
    fn: AnyItemFunction,
    undo?: Functions["undo"],
  ) => {
    const items = [...given];
    const { keyOf, concurrency = 8, onError = "fail-fast", lock, ...rest } = options;
    checkWhole("concurrency", concurrency, 1, 1_000);
    const itemKeys = items.map((item) => keyOf(item));
    checkItemKeys(name, itemKeys);
    const base = nameOf(name);
    const keys = itemKeys.map((key) => `${base}[${key}]`);
    const results: PromiseSettledResult<unknown>[] = [];
    let next = 0;
    let failed = false;
    const doItem = async (i: number, key: string) => {
      const item = items[i];
      const own = lock ? { ...rest, lock: lock(item) } : rest;
      results[i] = await settled(perform(name, key, own, { fn: (scope) => fn(item, scope), undo }));
      if (results[i]?.status === "rejected") failed = true;
    };
    const work = async () => {
      for (let i = next++; i < items.length; i = next++) {
        const key = keys[i] as string;
        // What was done before another one failed is come to again, for what it has to undo.
        const isOver = failed && onError === "fail-fast" && !drive.history.record(key);
        if (isOver) drive.history.skip(key);
        else await doItem(i, key);
      }
    };
    await Promise.all(Array.from({ length: Math.min(concurrency, items.length) }, work));
    if (onError === "collect") return results;
    const failure = results.find((result) => result?.status === "rejected");
    if (failure) throw failure.reason;
    return results.map((result) => (result as PromiseFulfilledResult<unknown>).value);
  };
  return map as MapFunction;
}

async function settled(promise: Promise<unknown>): Promise<PromiseSettledResult<unknown>> {
  const [result] = await Promise.allSettled([promise]);
  return result;
}
