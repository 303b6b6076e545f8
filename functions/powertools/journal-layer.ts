import {
  IdempotencyItemAlreadyExistsError,
  IdempotencyItemNotFoundError,
} from "@aws-lambda-powertools/idempotency";
import {
  BasePersistenceLayer,
  IdempotencyRecord,
} from "@aws-lambda-powertools/idempotency/persistence";
import { type Journal, StaleRunError } from "../../core/journal/journal.ts";
import type { RunClaimResult, RunKey } from "../../core/journal/runs.ts";
import type { Millis } from "../../core/lock/time.ts";
import { decode, encode, encodeError, hashOf } from "../../core/steps/codec.ts";
import { type Provider, resolve } from "../invocation/provider.ts";

/** The name under which `runs list` shows the records. */
const WORKFLOW = "powertools-idempotency";

/** Needs Powertools as soon as it is imported. */
export class JournalLayer extends BasePersistenceLayer {
  readonly #journal: Provider<Journal>;

  /** The claims whose functions run in this process, by key. */
  readonly #held = new Map<string, RunKey>();

  constructor(journal: Provider<Journal>) {
    super();
    this.#journal = journal;
  }

  protected async _putRecord(record: IdempotencyRecord): Promise<void> {
    const { idempotencyKey: runId, inProgressExpiryTimestamp: endsAt, payloadHash = "" } = record;
    // The process still executes the function, whatever the clocks say.
    if (this.#held.has(runId)) throw exists(inProgress(record, 1_000));
    const claimed = await (await resolve(this.#journal)).claim({
      runId,
      owner: process.env.AWS_LAMBDA_LOG_STREAM_NAME || "powertools",
      // Without the time of the invocation's end, the record is in progress until it expires.
      ttl: Math.max(1, (endsAt ?? expiryOf(record)) - Date.now()),
      workflow: WORKFLOW,
      version: 1,
      input: encode(payloadHash),
      inputHash: hashOf(payloadHash),
    });
    if (claimed.kind !== "claimed") throw exists(existingRecord(record, claimed));
    this.#held.set(runId, { runId, epoch: claimed.epoch });
  }

  protected async _updateRecord(record: IdempotencyRecord): Promise<void> {
    const value = encode(record.responseData);
    await this.#finish(record, { status: "completed", value, keep: expiryOf(record) - Date.now() });
  }

  /** The function has failed: the next caller executes it again. */
  protected async _deleteRecord(record: IdempotencyRecord): Promise<void> {
    const value = encodeError(new Error("the function failed"));
    try {
      await this.#finish(record, { status: "failed", value, keep: 0, compensated: "unclear" });
    } catch (error) {
      // Another caller has taken the record over: this one must not delete it.
      if (!(error instanceof StaleRunError)) throw error;
    }
  }

  protected async _getRecord(idempotencyKey: string): Promise<IdempotencyRecord> {
    const run = await (await resolve(this.#journal)).show(idempotencyKey, { limit: 1 });
    if (!run) throw new IdempotencyItemNotFoundError(`there is no record ${idempotencyKey}`);
    const record = { idempotencyKey, payloadHash: decode<string>(run.input) };
    if (run.ending?.status === "completed") return completed(record, run.ending.value);
    const left = (run.dueAt?.getTime() ?? 0) - run.now.getTime();
    return inProgress(record, left);
  }

  async #finish(
    { idempotencyKey }: IdempotencyRecord,
    request: Parameters<Journal["finish"]>[1],
  ): Promise<void> {
    const held = this.#held.get(idempotencyKey);
    if (!held) throw new TypeError(`the record ${idempotencyKey} is not in progress here`);
    try {
      await (await resolve(this.#journal)).finish(held, request);
    } finally {
      this.#held.delete(idempotencyKey);
    }
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

/** Powertools replays the record, or says that it is in progress. */
function exists(record: IdempotencyRecord): Error {
  const problem = `the record ${record.idempotencyKey} exists`;
  return new IdempotencyItemAlreadyExistsError(problem, record);
}

function existingRecord(
  { idempotencyKey, payloadHash }: IdempotencyRecord,
  found: Exclude<RunClaimResult, { readonly kind: "claimed" }>,
): IdempotencyRecord {
  const record = { idempotencyKey, payloadHash };
  // Powertools refuses another payload by another hash.
  if (found.kind === "conflict") return inProgress({ ...record, payloadHash: "another" }, 1_000);
  const isCompleted = found.kind === "ended" && found.ending.status === "completed";
  if (isCompleted) return completed(record, found.ending.value);
  return inProgress(record, found.kind === "busy" ? found.retryIn : 1_000);
}

function inProgress(record: NamedRecord, left: Millis): IdempotencyRecord {
  const inProgressExpiryTimestamp = Date.now() + left;
  return recordOf(record, { status: "INPROGRESS", inProgressExpiryTimestamp });
}

function completed(record: NamedRecord, value: string): IdempotencyRecord {
  return recordOf(record, { status: "COMPLETED", responseData: decode(value) });
}

type RecordOptions = ConstructorParameters<typeof IdempotencyRecord>[0];

function recordOf(
  { idempotencyKey, payloadHash }: NamedRecord,
  rest: Omit<RecordOptions, "idempotencyKey">,
): IdempotencyRecord {
  return new IdempotencyRecord({ idempotencyKey, ...(payloadHash && { payloadHash }), ...rest });
}
