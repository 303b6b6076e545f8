import { checkFunction } from "../../core/lock/checks.ts";

/** A dependency of a handler, or a function that opens it. Every invocation calls the function: see `lazy`. */
export type Provider<T extends object> = T | (() => T | Promise<T>);

export async function resolve<T extends object>(provider: Provider<T>): Promise<T> {
  return typeof provider === "function" ? provider() : provider;
}

/**
 * Opens a dependency in the first invocation and reuses it in the next ones. A failed `open` is tried again.
 *
 *     const shop = lazy(() => open("mysql://app@db.internal/shop"));
 */
export function lazy<T>(open: () => Promise<T>): () => Promise<T> {
  checkFunction("the argument of lazy", open);
  let opening: Promise<T> | undefined;
  return () => {
    opening ??= open().catch((error) => {
      opening = undefined;
      throw error;
    });
    return opening;
  };
}
