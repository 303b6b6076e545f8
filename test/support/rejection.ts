import { expect } from "vitest";

/** Like `rejects`, but for concurrent tests, in which `rejects` may attribute its promise to another test. */
export async function expectRejection(call: Promise<unknown>, like: object): Promise<void> {
  const outcome = await call.then(
    () => "resolved",
    (error: unknown) => error,
  );
  expect(outcome).toMatchObject(like);
}
