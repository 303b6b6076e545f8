import { importError, provideRequire } from "../peer.ts";

type Pg = Pick<typeof import("pg"), "Client" | "types">;

/** Loads the client. Rejects with a TypeError when the package pg is not installed. */
export async function loadPg(): Promise<Pg> {
  provideRequire();
  try {
    // Some bundlers give a CommonJS package no other export.
    return (await import("pg")).default;
  } catch (error) {
    throw importError("pg", error);
  }
}
