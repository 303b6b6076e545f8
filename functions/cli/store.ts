import { hasCode, StoreUnavailableError } from "../../core/lock/errors.ts";
import type { Millis } from "../../core/lock/time.ts";
import { type AnyStore, open } from "../../infra/open.ts";
import { withTimeout } from "../display/with-timeout.ts";
import type { StoreArgs } from "./options.ts";

/** Opens the store, prints its URL, calls `work`, and closes the store in every case. */
export async function withStore<T>(
  { store }: StoreArgs,
  work: (opened: AnyStore) => Promise<T>,
  options?: Parameters<typeof open>[1],
): Promise<T> {
  const opened = await open(store, options);
  announceStore("store", opened);
  try {
    return await work(opened);
  } catch (error) {
    // The server has already used up its time.
    if (hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) timeLeftToExit(SILENT_EXIT_LIMIT);
    throw error;
  } finally {
    await cleanUp(opened.close());
  }
}

/** Calls `work` with the locks of `--locks`, opened for the call, or with undefined if there is no such option. */
export async function withLocks<T>(
  url: string | undefined,
  work: (opened: AnyStore | undefined) => Promise<T>,
  options?: Parameters<typeof open>[1],
): Promise<T> {
  if (url === undefined) return work(undefined);
  const opened = await open(url, options);
  announceStore("locks", opened);
  try {
    return await work(opened);
  } finally {
    await cleanUp(opened.close());
  }
}

/** How long a server may take for its first answer to a command that reads, in milliseconds. */
const FIRST_ANSWER_LIMIT = 2_000;

/** Like `withStore`, for work that changes nothing: a store that does not exist is not created, and reads as empty. */
export function withStoreToRead<T>(
  args: StoreArgs,
  work: (opened: AnyStore) => Promise<T>,
  options?: Parameters<typeof open>[1],
): Promise<T> {
  const workUnlessSilent = (opened: AnyStore) =>
    Promise.race([rejectIfSilent(opened), work(opened)]).catch((error) => {
      // Nothing is held, so nothing needs releasing.
      timeLeftToExit(0);
      throw error;
    });
  return withStore(args, workUnlessSilent, { ...options, create: false });
}

/** Rejects if the server answers nothing at all. Never resolves: a long read may take its time. */
async function rejectIfSilent({ locks, url }: AnyStore): Promise<never> {
  const answer = locks.inspect("lockstep").then(
    () => "read",
    () => "failed",
  );
  if (await withTimeout(FIRST_ANSWER_LIMIT, answer)) return new Promise(() => {});
  throw new StoreUnavailableError(url, `it did not answer within ${FIRST_ANSWER_LIMIT / 1_000} s`);
}

/** Prints the store's URL on standard error. */
function announceStore(role: "store" | "locks", { url }: AnyStore): void {
  process.stderr.write(`lockstep: ${role} ${url}\n`);
}

/** How long the clean-up of a command may take in all, in milliseconds: its server may hang. */
const EXIT_LIMIT = 2_000;

/** The same limit for a server that did not answer before. */
const SILENT_EXIT_LIMIT = 500;

let exitAt = Number.POSITIVE_INFINITY;

/** Returns the time left for the clean-up of this command, in milliseconds. The first call starts the clock. */
export function timeLeftToExit(limit: Millis = EXIT_LIMIT): Millis {
  exitAt = Math.min(exitAt, performance.now() + limit);
  return Math.max(0, exitAt - performance.now());
}

/** Waits for a step of the clean-up, within the time left for it. */
export async function cleanUp(step: Promise<unknown>): Promise<void> {
  await withTimeout(timeLeftToExit(), step);
}
