/** Stands for an object that `beforeAll` makes, so that a suite can be described with it before. */
export function late<T extends object>(get: () => T): T {
  return new Proxy({} as T, { get: (_, name) => Reflect.get(get(), name) });
}
