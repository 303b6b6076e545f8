import { decodeChildResult, encodeChildResult, parentStepOf } from "../journal/child-result.ts";
import {
  type EntityAnswer,
  type EntityId,
  type EntityMessage,
  type EntityRecords,
  entityResource,
} from "../journal/entities.ts";
import type { Journal } from "../journal/journal.ts";
import type { NewRecord } from "../journal/records.ts";
import type { NewSignal, RunKey } from "../journal/runs.ts";
import type { Envelopes } from "./envelope.ts";
import { readRecords } from "./read-run.ts";
import { originIn } from "./step-keys.ts";

/** The encoded parts of a run that a call resolves to. */
interface RunParts {
  readonly workflow: string;
  readonly input: string;
  readonly records: readonly NewRecord[];
  readonly signals: readonly NewSignal[];
}

/**
 * Wraps a journal: codecs encode the values that go in, and decode those that come out.
 *
 * Errors of blocked runs stay as they are: they name steps and keys, and a process without the key has to read them.
 */
export function codedJournal(journal: Journal, envelopes: Envelopes): Journal {
  const { transact } = journal;
  const inOrder = ordered();
  const valuesOf = (runId: string) =>
    new RunValues(envelopes, runId, () => originsOf(journal, runId));
  const sealRecord = async <R extends NewRecord>(runId: string, record: R): Promise<R> => {
    const { value } = record;
    return value === undefined ? record : { ...record, value: await envelopes.seal(value, runId) };
  };
  return {
    ...journal,
    entities: codedEntities(journal.entities, envelopes),

    async start(runs, ...rest) {
      const sealed = await Promise.all(
        runs.map(async (run) => ({ ...run, input: await envelopes.seal(run.input, run.runId) })),
      );
      const started = await journal.start(sealed, ...rest);
      return Promise.all(started.map((state, i) => valuesOf(runs[i]?.runId ?? "").result(state)));
    },

    async claim(claim, signal) {
      const input = await envelopes.seal(claim.input, claim.runId);
      return valuesOf(claim.runId).result(await journal.claim({ ...claim, input }, signal));
    },

    async startKeyed(run, start, signal) {
      // The answer may be another run, which gets this input.
      const input = await envelopes.seal(run.input, keyedScope(run.workflow));
      const started = await journal.startKeyed({ ...run, input }, start, signal);
      return valuesOf(started.runId).result(started);
    },

    async take(request, signal) {
      return valuesOf(request.runId).result(await journal.take(request, signal));
    },

    async claimDue(query, signal) {
      const runs = await journal.claimDue(query, signal);
      return Promise.all(runs.map((run) => valuesOf(run.runId).run(run)));
    },

    async append(run, record, signal) {
      const sealed = await sealRecord(run.runId, record);
      const written = await journal.append(run, sealed, signal);
      const isOurs = written.value === sealed.value;
      const opened = isOurs
        ? { ...written, value: record.value }
        : valuesOf(run.runId).record(written);
      return inOrder(run, opened);
    },

    transact:
      transact &&
      (async (run, step, body, signal) => {
        const sealing: typeof body = async (tx) => sealRecord(run.runId, await body(tx));
        const written = await transact(run, step, sealing, signal);
        return inOrder(run, valuesOf(run.runId).record(written));
      }),

    async finish(run, request, signal) {
      const value = await envelopes.seal(request.value, run.runId);
      return journal.finish(run, { ...request, value }, signal);
    },

    async continueAsNew(run, request) {
      const input = await envelopes.seal(request.input, run.runId);
      return journal.continueAsNew(run, { ...request, input });
    },

    async signal(runId, signal) {
      const seal = (text: string, scope: string) => envelopes.seal(text, scope);
      return journal.signal(runId, {
        ...signal,
        payload: await mapPayload(runId, signal, seal),
      });
    },

    async latest(runId, prefix) {
      const record = await journal.latest(runId, prefix);
      return record && valuesOf(runId).record(record);
    },

    async show(runId, page) {
      const run = await journal.show(runId, page);
      if (!run) return undefined;
      const { ending } = run;
      const values = valuesOf(runId);
      return {
        ...(await values.run(run)),
        ending: ending && { ...ending, value: await values.open(ending.value) },
      };
    },

    async records(runId, page) {
      const found = await journal.records(runId, page);
      return { ...found, records: await valuesOf(runId).records(found.records) };
    },

    async values(runId, keys) {
      const values = valuesOf(runId);
      const found = [...(await journal.values(runId, keys))];
      return new Map(
        await Promise.all(
          found.map(async ([key, text]) => [key, await values.open(text)] as const),
        ),
      );
    },
  };
}

/** Resolves to the runs whose results a fork uses, as the marks among its records say. */
async function originsOf(journal: Journal, runId: string): Promise<readonly string[]> {
  const { origin } = (await journal.find(runId)) ?? {};
  if (!origin) return [];
  return originsIn(await readRecords(journal, runId, await journal.records(runId, {})));
}

/** Returns the runs whose results a fork uses. */
export function originsIn(records: readonly Pick<NewRecord, "key" | "kind">[]): readonly string[] {
  return records.filter(({ kind }) => kind === "fork").map(({ key }) => originIn(key));
}

/** Opens the values of one run, with those that other runs have sent to it. */
export class RunValues {
  readonly #envelopes: Envelopes;
  readonly #runId: string;
  readonly #origins: () => Promise<readonly string[]>;
  #known: Promise<readonly string[]> | undefined;

  /** `origins` are asked for when a value is not the run's own. */
  constructor(envelopes: Envelopes, runId: string, origins: () => Promise<readonly string[]>) {
    this.#envelopes = envelopes;
    this.#runId = runId;
    this.#origins = () => {
      this.#known ??= origins();
      return this.#known;
    };
  }

  open(text: string): Promise<string> {
    return this.#envelopes.open(text, this.#runId, this.#origins);
  }

  async record<R extends NewRecord>(record: R): Promise<R> {
    const { value } = record;
    return value === undefined ? record : { ...record, value: await this.open(value) };
  }

  records<R extends NewRecord>(records: readonly R[]): Promise<readonly R[]> {
    return Promise.all(records.map((record) => this.record(record)));
  }

  async run<R extends RunParts>(run: R): Promise<R> {
    const [input, records, signals] = await Promise.all([
      this.#input(run),
      this.records(run.records),
      Promise.all(run.signals.map((signal) => this.#signal(signal))),
    ]);
    return { ...run, input, records, signals };
  }

  /** Opens the values of a claimed or an ended run. */
  async result<R extends { readonly kind: string }>(result: R): Promise<R> {
    if (isClaimed(result)) return this.run(result);
    if (!isEnded(result)) return result;
    const { ending } = result;
    return { ...result, ending: { ...ending, value: await this.open(ending.value) } };
  }

  #input({ input, workflow }: RunParts): Promise<string> {
    const scopes = async () => [keyedScope(workflow), ...(await this.#origins())];
    return this.#envelopes.open(input, this.#runId, scopes);
  }

  async #signal(signal: NewSignal): Promise<NewSignal> {
    const open = (text: string, scope: string) => this.#envelopes.open(text, scope, this.#origins);
    return { ...signal, payload: await mapPayload(this.#runId, signal, open) };
  }
}

/** The scope of the inputs of runs whose starts do not choose their ids. */
function keyedScope(workflow: string): string {
  return `workflow/${workflow}`;
}

/** Maps the payload of a signal. The result of a child, which is a part of its parent's signal, is a value of the child. */
async function mapPayload(
  runId: string,
  { name, dedupeId, payload }: NewSignal,
  map: (text: string, scope: string) => Promise<string>,
): Promise<string> {
  if (parentStepOf(name) === undefined) return map(payload, runId);
  const result = decodeChildResult(payload);
  return encodeChildResult({ ...result, value: await map(result.value, dedupeId) });
}

function isClaimed<R extends { readonly kind: string }>(result: R): result is R & RunParts {
  return result.kind === "claimed";
}

function isEnded<R extends { readonly kind: string }>(
  result: R,
): result is R & { readonly ending: { readonly value: string } } {
  return result.kind === "ended";
}

/** Returns a function whose promises resolve in the order of its calls, for each run. */
function ordered() {
  const last = new WeakMap<RunKey, Promise<unknown>>();
  return <T>(run: RunKey, result: T | Promise<T>): Promise<T> => {
    const before = last.get(run);
    const inOrder = (async () => {
      await before;
      return result;
    })();
    last.set(run, inOrder);
    return inOrder;
  };
}

function codedEntities(records: EntityRecords, envelopes: Envelopes): EntityRecords {
  const openAnswer = async <A extends EntityAnswer | undefined>(id: EntityId, answer: A) =>
    answer && { ...answer, value: await envelopes.open(answer.value, entityResource(id)) };
  const openMessages = (id: EntityId, messages: readonly EntityMessage[]) =>
    Promise.all(
      messages.map(async (message) => ({
        ...message,
        input: await envelopes.open(message.input, entityResource(id)),
      })),
    );
  const openState = async (id: EntityId, state: string | undefined) =>
    state === undefined ? undefined : envelopes.open(state, entityResource(id));
  return {
    ...records,

    async visit(id, { message, ttl }, signal) {
      const scope = entityResource(id);
      const sealed = message && { ...message, input: await envelopes.seal(message.input, scope) };
      const visited = await records.visit(id, { message: sealed, ttl }, signal);
      const { answer, claimed } = visited;
      return {
        ...visited,
        answer: await openAnswer(id, answer),
        claimed: claimed && {
          ...claimed,
          state: await openState(id, claimed.state),
          messages: await openMessages(id, claimed.messages),
        },
      };
    },

    async commit(claim, change, signal) {
      const { id } = claim;
      const scope = entityResource(id);
      const answers = await Promise.all(
        change.answers.map(async (answer) => ({
          ...answer,
          value: await envelopes.seal(answer.value, scope),
        })),
      );
      const state = await envelopes.seal(change.state, scope);
      return openMessages(id, await records.commit(claim, { ...change, state, answers }, signal));
    },

    async read(id, operationId, signal) {
      const view = await records.read(id, operationId, signal);
      return {
        ...view,
        state: await openState(id, view.state),
        answer: await openAnswer(id, view.answer),
      };
    },
  };
}
