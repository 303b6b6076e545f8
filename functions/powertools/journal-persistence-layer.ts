import type {
  BasePersistenceLayer,
  IdempotencyRecord,
} from "@aws-lambda-powertools/idempotency/persistence";
import type { Journal } from "../../core/journal/journal.ts";
import { lazy, type Provider } from "../invocation/provider.ts";
import { enterCall, JournalRecords } from "./journal-records.ts";
import { loadPowertools, type Powertools } from "./powertools.ts";

/** The methods of a layer that Powertools calls. */
type Layer = Pick<
  BasePersistenceLayer,
  | "configure"
  | "deleteRecord"
  | "getRecord"
  | "processExistingRecord"
  | "saveInProgress"
  | "saveSuccess"
>;

type Data = Parameters<Layer["deleteRecord"]>[0];

/**
 * Keeps the records of Powertools' idempotency in a journal: each key is a run without steps.
 *
 *     const shop = lazy(() => open("mysql://app@db.internal/shop"));
 *     const persistenceStore = new JournalPersistenceLayer(async () => (await shop()).journal);
 *
 * A record in progress is a lease by the journal's clock, and each claim of it raises its epoch. So an orphan, whose function
 * was killed, is taken over by one caller, and the late result of its first holder is refused, in every order of reads.
 */
export type JournalPersistenceLayer = BasePersistenceLayer;

/** Loads Powertools with the first call: the entry can be imported, and bundled, without it. */
class LazyLayer implements Layer {
  readonly #load: () => Promise<BasePersistenceLayer>;
  #layer: BasePersistenceLayer | undefined;
  #options: Parameters<Layer["configure"]>[0] | undefined;

  constructor(journal: Provider<Journal>) {
    this.#load = lazy(async () => layerOf(await loadPowertools(), journal));
  }

  configure(options: Parameters<Layer["configure"]>[0]): void {
    this.#options = options;
    this.#layer?.configure(options);
  }

  saveInProgress(data: Data, remaining?: number): Promise<void> {
    enterCall();
    return this.#call((layer) => layer.saveInProgress(data, remaining));
  }

  saveSuccess(data: Data, result: Data): Promise<void> {
    return this.#call((layer) => layer.saveSuccess(data, result));
  }

  deleteRecord(data: Data): Promise<void> {
    return this.#call((layer) => layer.deleteRecord(data));
  }

  getRecord(data: Data): Promise<IdempotencyRecord> {
    return this.#call((layer) => layer.getRecord(data));
  }

  processExistingRecord(
    ...args: Parameters<Layer["processExistingRecord"]>
  ): ReturnType<Layer["processExistingRecord"]> {
    if (!this.#layer) throw new TypeError("Powertools has not saved a record yet");
    return this.#layer.processExistingRecord(...args);
  }

  async #call<T>(call: (layer: Layer) => Promise<T>): Promise<T> {
    if (this.#layer) return call(this.#layer);
    const options = this.#options;
    const layer = await this.#load();
    this.#layer = layer;
    // A record's key has the prefix that was configured last before its call: a call has computed its key when it returns.
    if (options) layer.configure(options);
    const answer = call(layer);
    if (this.#options) layer.configure(this.#options);
    return answer;
  }
}

function layerOf(powertools: Powertools, journal: Provider<Journal>): BasePersistenceLayer {
  const records = new JournalRecords(powertools, journal);
  class JournalLayer extends powertools.BasePersistenceLayer {
    protected _putRecord(record: IdempotencyRecord): Promise<void> {
      return records.put(record);
    }

    protected _updateRecord(record: IdempotencyRecord): Promise<void> {
      return records.update(record);
    }

    protected _deleteRecord(record: IdempotencyRecord): Promise<void> {
      return records.delete(record);
    }

    protected _getRecord(idempotencyKey: string): Promise<IdempotencyRecord> {
      return records.get(idempotencyKey);
    }
  }
  return new JournalLayer();
}

/** A class, as Powertools' own layers are. */
export const JournalPersistenceLayer = LazyLayer as unknown as new (
  journal: Provider<Journal>,
) => BasePersistenceLayer;
