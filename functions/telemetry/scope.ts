import { AsyncLocalStorage } from "node:async_hooks";

/** What is known of the work that goes on, for its lines in the log. */
export type Fields = Readonly<Record<string, unknown>>;

const scope = new AsyncLocalStorage<Fields>();

/** All that is done in the body has these fields, besides those that it has already. */
export function withFields<T>(fields: Fields, body: () => T): T {
  return scope.run({ ...scope.getStore(), ...fields }, body);
}

export function fieldsHere(): Fields {
  return scope.getStore() ?? {};
}
