import { importError } from "../../core/stores/peer.ts";

/** What Powertools exports for layers. */
export type Powertools = Pick<
  typeof import("@aws-lambda-powertools/idempotency"),
  "IdempotencyItemAlreadyExistsError" | "IdempotencyItemNotFoundError"
> &
  typeof import("@aws-lambda-powertools/idempotency/persistence");

/** Loads Powertools. Rejects with a TypeError when its package is not installed. */
export async function loadPowertools(): Promise<Powertools> {
  try {
    return {
      ...(await import("@aws-lambda-powertools/idempotency")),
      ...(await import("@aws-lambda-powertools/idempotency/persistence")),
    };
  } catch (error) {
    throw importError("@aws-lambda-powertools/idempotency", error, "JournalPersistenceLayer");
  }
}
