import { AsyncLocalStorage } from "node:async_hooks";
import type { IdempotencyRecord } from "@aws-lambda-powertools/idempotency/persistence";
import { type Journal, StaleRunError } from "../../core/journal/journal.ts";
import type { RunClaimResult, RunKey } from "../../core/journal/runs.ts";
import { LONGEST_SPAN } from "../../core/lock/checks.ts";
import { elapsedSince, type Instant, instant, type Millis } from "../../core/lock/time.ts";
import { decode, encode, encodeError, hashOf } from "../../core/steps/codec.ts";
import { type Provider, resolve } from "../invocation/provider.ts";
import type { Powertools } from "./powertools.ts";

/** The name under which `runs list` shows the records. */
const WORKFLOW = "powertools-idempotency";

/** The claim of a record whose function this process executes. */
interface Held {
  readonly run: RunKey;
  readonly claimedAt: Instant;
  readonly ttl: Millis;

  /** The earlier claims of the record whose functions have said nothing since: they may still be executed. */
  readonly silent: number;
}

/** The claims of a call of an idempotent function, and of the calls around it, by the records' keys. */
const claimsOfCall = new AsyncLocalStorage<Map<string, Held>>();

/**
 * Begins a call of an idempotent function. Powertools has to call this before it awaits anything: a function that
 * awaits its layer stays in the context that was entered meanwhile.
 */
export function enterCall(): void {
  claimsOfCall.enterWith(new Map(claimsOfCall.getStore()));
}

/** The most records that are held. Then those are forgotten whose leases have ended. */
const MOST_HELD = 1_000;

/** The value of a finished record. */
interface Result {
  readonly responseData: IdempotencyRecord["responseData"];
  readonly payloadHash: string | undefined;

  /** When the record expires, in seconds since 1970: caches in memory keep it until then. */
  readonly expiryTimestamp: number | undefined;
}

/** The records of Powertools in a journal. */
export class JournalRecords {
  readonly #powertools: Powertools;
  readonly #journal: Provider<Journal>;

  /** By the record's key. An entry whose lease has ended says nothing: a function may end without a word to its layer. */
  readonly #held = new Map<string, Held>();

  constructor(powertools: Powertools, journal: Provider<Journal>) {
    this.#powertools = powertools;
    this.#journal = journal;
  }

  async put(record: IdempotencyRecord): Promise<void> {
    const { idempotencyKey: runId, inProgressExpiryTimestamp: endsAt, payloadHash = "" } = record;
    const left = this.#leftOf(runId);
    if (left > 0) throw this.#exists(this.#inProgress(record, left));
    // Without the time of the invocation's end, the record is in progress until it expires.
    const ttl = Math.min(LONGEST_SPAN, Math.max(1, (endsAt ?? expiryOf(record)) - Date.now()));
    const claimedAt = instant();
    const claimed = await (await resolve(this.#journal)).claim({
      runId,
      owner: process.env.AWS_LAMBDA_LOG_STREAM_NAME || "powertools",
      ttl,
      workflow: WORKFLOW,
      version: 1,
      input: encode(payloadHash),
      // Powertools compares payloads: an orphan may be taken over with another one.
      inputHash: hashOf(""),
    });
    if (claimed.kind !== "claimed") throw this.#exists(this.#existingRecord(record, claimed));
    if (this.#held.size >= MOST_HELD) this.#forgetEnded();
    const before = this.#held.get(runId);
    const silent = before ? before.silent + 1 : 0;
    const held = { run: { runId, epoch: claimed.epoch }, claimedAt, ttl, silent };
    this.#held.set(runId, held);
    claimsOfCall.getStore()?.set(runId, held);
  }

  #forgetEnded(): void {
    for (const key of this.#held.keys()) if (this.#leftOf(key) <= 0) this.#held.delete(key);
  }

  /** How long this process still executes the function of a record, at the most. */
  #leftOf(idempotencyKey: string): Millis {
    const held = this.#held.get(idempotencyKey);
    return held ? held.ttl - elapsedSince(held.claimedAt) : 0;
  }

  async update(record: IdempotencyRecord): Promise<void> {
    const { responseData, payloadHash, expiryTimestamp } = record;
    const value = encode({ responseData, payloadHash, expiryTimestamp } satisfies Result);
    const keep = Math.max(0, expiryOf(record) - Date.now());
    await this.#finish(record, { status: "completed", value, keep });
  }

  /** The function has failed: the next caller executes it again. */
  async delete(record: IdempotencyRecord): Promise<void> {
    const { idempotencyKey: key } = record;
    const held = this.#held.get(key);
    // Which of several functions has failed is unknown: the lease of the last one ends by itself.
    if (held && held.silent > 0 && !claimsOfCall.getStore()?.has(key)) {
      this.#held.set(key, { ...held, silent: held.silent - 1 });
      return;
    }
    const value = encodeError(new Error("the function failed"));
    try {
      await this.#finish(record, { status: "failed", value, keep: 0, compensated: "unclear" });
    } catch (error) {
      // Another caller has taken the record over: this one must not delete it.
      if (!(error instanceof StaleRunError)) throw error;
    }
  }

  async get(idempotencyKey: string): Promise<IdempotencyRecord> {
    const run = await (await resolve(this.#journal)).show(idempotencyKey, { limit: 1 });
    if (!run) {
      const { IdempotencyItemNotFoundError } = this.#powertools;
      throw new IdempotencyItemNotFoundError(`there is no record ${idempotencyKey}`);
    }
    if (run.ending?.status === "completed")
      return this.#completed(idempotencyKey, run.ending.value);
    const left = (run.dueAt?.getTime() ?? 0) - run.now.getTime();
    return this.#inProgress({ idempotencyKey, payloadHash: decode<string>(run.input) }, left);
  }

  async #finish(
    { idempotencyKey: key }: IdempotencyRecord,
    request: Parameters<Journal["finish"]>[1],
  ): Promise<void> {
    const ofCall = claimsOfCall.getStore();
    // A middleware behind others that await runs in no context that lasts: the last claim of the key is taken for its own.
    const held = ofCall?.get(key) ?? this.#held.get(key);
    if (!held) throw new TypeError(`the record ${key} is not in progress here`);
    try {
      await (await resolve(this.#journal)).finish(held.run, request);
    } finally {
      ofCall?.delete(key);
      if (this.#held.get(key)?.run.epoch === held.run.epoch) this.#held.delete(key);
    }
  }

  /** Powertools replays the record, or says that it is in progress. */
  #exists(record: IdempotencyRecord): Error {
    const { IdempotencyItemAlreadyExistsError } = this.#powertools;
    const problem = `the record ${record.idempotencyKey} exists`;
    return new IdempotencyItemAlreadyExistsError(problem, record);
  }

  #existingRecord(
    record: IdempotencyRecord,
    found: Exclude<RunClaimResult, { readonly kind: "claimed" }>,
  ): IdempotencyRecord {
    const isCompleted = found.kind === "ended" && found.ending.status === "completed";
    if (isCompleted) return this.#completed(record.idempotencyKey, found.ending.value);
    return this.#inProgress(record, found.kind === "busy" ? found.retryIn : 1_000);
  }

  #inProgress(record: NamedRecord, left: Millis): IdempotencyRecord {
    const inProgressExpiryTimestamp = Date.now() + left;
    return this.#recordOf(record, { status: "INPROGRESS", inProgressExpiryTimestamp });
  }

  #completed(idempotencyKey: string, value: string): IdempotencyRecord {
    const { responseData, payloadHash, expiryTimestamp } = decode<Result>(value);
    return this.#recordOf(
      { idempotencyKey, payloadHash },
      {
        status: "COMPLETED",
        responseData,
        // The journal has the record still, whatever this process's clock says.
        ...(expiryTimestamp !== undefined && {
          expiryTimestamp: Math.max(expiryTimestamp, Math.ceil(Date.now() / 1_000) + 1),
        }),
      },
    );
  }

  #recordOf(
    { idempotencyKey, payloadHash }: NamedRecord,
    rest: Omit<RecordOptions, "idempotencyKey">,
  ): IdempotencyRecord {
    return new this.#powertools.IdempotencyRecord({
      idempotencyKey,
      ...(payloadHash && { payloadHash }),
      ...rest,
    });
  }
}

interface NamedRecord {
  readonly idempotencyKey: string;
  readonly payloadHash?: string | undefined;
}

/** In milliseconds since 1970. */
function expiryOf({ expiryTimestamp = 0 }: IdempotencyRecord): Millis {
  return expiryTimestamp * 1_000;
}

type RecordOptions = ConstructorParameters<typeof IdempotencyRecord>[0];
