import { importError, provideRequire } from "../../peer.ts";

type Ioredis = typeof import("ioredis").Redis;

/** Loads the client. Rejects with a TypeError when the package ioredis is not installed. */
export async function loadIoredis(): Promise<Ioredis> {
  provideRequire();
  try {
    // Some bundlers give a CommonJS package no other export.
    return (await import("ioredis")).default.Redis;
  } catch (error) {
    throw importError("ioredis", error);
  }
}
