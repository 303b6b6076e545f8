import { importError, provideRequire } from "../peer.ts";

type Mysql2 = Pick<typeof import("mysql2"), "createConnection">;

/** Loads the client. Rejects with a TypeError when the package mysql2 is not installed. */
export async function loadMysql2(): Promise<Mysql2> {
  provideRequire();
  try {
    // Some bundlers give a CommonJS package no other export.
    return (await import("mysql2")).default;
  } catch (error) {
    throw importError("mysql2", error);
  }
}
