import { expect } from "vitest";

/** For tests that run side by side, where `rejects` may take its promise for another test's. */
export async function expectRejection(call: Promise<unknown>, like: object): Promise<void> {
  const outcome = await call.then(
    () => "resolved",
    (error: unknown) => error,
  );
  expect(outcome).toMatchObject(like);
}
