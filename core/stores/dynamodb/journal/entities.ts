import {
  type EntityAnswer,
  type EntityClaim,
  type EntityId,
  type EntityMessage,
  type EntityRecords,
  type EntityVisitResult,
  type EntityWrite,
  entityResource,
} from "../../../journal/entities.ts";
import { transactionRefused } from "../../../journal/journal.ts";
import { hasCode, quote } from "../../../lock/errors.ts";
import { FencedOutError, fenceOwner, formatFence, issueFence } from "../../../lock/fence.ts";
import type { Dynamodb, TransactWriteItem } from "../client/dynamodb.ts";
import { GENERATION } from "../locks/generation.ts";
import { checkItem, refusedItem } from "../own-items.ts";
import type { TableClock } from "./clock.ts";
import { type ChangePlan, Documents } from "./documents.ts";
import {
  answer,
  created,
  deliver,
  ENTITIES,
  type EntityItem,
  type MessageItem,
  type NumberedMessage,
  nameOf,
  type OperationItem,
  operationPlace,
  partitionOf,
  valuesOf,
  waitingPlace,
} from "./entity-items.ts";
import { endOf, fromTimed, once, SHARDS, timed, timeIn } from "./runs.ts";
import {
  deleteRange,
  LONGEST_IN_HEAD,
  LONGEST_IN_MESSAGE,
  readItems,
  readRange,
  readStored,
  readUntorn,
  type Stored,
  store,
  writeAgain,
} from "./values.ts";

/**
 * The most messages that are answered in one transaction, which has 100 writes: three for each answer, three for the
 * entity and where it is found, and those of the last handler.
 */
const MOST_AT_ONCE = 24;
const MOST_WRITES = 100 - 3 * MOST_AT_ONCE - 3;

interface Committed {
  /** The messages that wait now. */
  readonly messages: readonly EntityMessage[];

  /** The inputs of the answered messages, which nobody reads any more. */
  readonly inputs: readonly Stored[];
}

/** Opens the records of entities in a table. */
export function dynamodbEntities(dynamodb: Dynamodb, clock: TableClock): EntityRecords {
  const entities = new Documents(dynamodb, clock, ENTITIES, async (before, after) => {
    if (JSON.stringify(before.state) !== JSON.stringify(after.state)) {
      await deleteChunks(before, before.state);
    }
  });

  const read = async (id: EntityId, signal?: AbortSignal) => {
    const [found] = await entities.read([nameOf(id)], signal);
    return found;
  };

  const readOperations = async (
    id: EntityId,
    operationIds: readonly string[],
  ): Promise<readonly (OperationItem | undefined)[]> => {
    const items = await readItems(
      dynamodb,
      operationIds.map((operationId) => operationPlace(id, operationId)),
    );
    return items.map((item) => item && JSON.parse(item.text ?? ""));
  };

  const toAnswer = async (
    id: EntityId,
    { outcome, value }: OperationItem,
  ): Promise<EntityAnswer | undefined> =>
    outcome && { outcome, value: await readStored(dynamodb, partitionOf(id), value ?? "") };

  const readState = async (id: EntityId, state: Stored | undefined) =>
    state === undefined ? undefined : readStored(dynamodb, partitionOf(id), state);

  /** Reads the oldest messages. */
  const readMessages = async (id: EntityId, most: number) => {
    const waiting: NumberedMessage[] = [];
    const range = { pk: partitionOf(id), from: "inbox/", to: endOf("inbox/"), limit: most };
    for await (const { items } of dynamodb.query(range)) {
      for (const { sk = "", text = "" } of items) {
        waiting.push({ ...JSON.parse(text), number: Number(sk.slice(-10)) });
      }
      if (waiting.length >= most) break;
    }
    return waiting.slice(0, most);
  };

  const toMessage = async (
    id: EntityId,
    { at: _, number: __, input, ...message }: NumberedMessage,
  ): Promise<EntityMessage> => ({
    ...message,
    input: await readStored(dynamodb, partitionOf(id), input),
  });

  const isHeld = (entity: EntityItem | undefined, { fence }: EntityClaim): boolean =>
    entity?.token === String(fence.token) && entity.owner === fenceOwner(fence);

  return {
    async visit(id, { message, ttl }, signal) {
      const name = nameOf(id);
      const mark = crypto.randomUUID();
      const generation =
        ttl === undefined ? 0 : Number((await dynamodb.get(GENERATION, signal))?.generation ?? 0);
      const input = once(() =>
        store(dynamodb, valuesOf(id), message?.input ?? "", LONGEST_IN_MESSAGE, signal),
      );
      return entities.change<EntityVisitResult>({
        ids: [name],
        what: `${quote(entityResource(id))} was visited`,
        signal,
        async plan([found], now): Promise<ChangePlan<EntityItem, EntityVisitResult>> {
          const [known] = message ? await readOperations(id, [message.operationId]) : [];
          const answer = known && (await toAnswer(id, known));
          const before = found ?? created(id);
          const isNew = message !== undefined && known === undefined;
          const number = before.messages + 1;
          const waitsSince = before.waitsSince ?? now;
          const entity = isNew ? { ...before, messages: number, waitsSince } : before;
          const writes = isNew
            ? deliver(id, number, { ...message, input: await input(), at: now })
            : [];
          const inputHash = known?.inputHash ?? message?.inputHash;
          const isFree = before.heldUntil <= now && entity.waitsSince !== undefined;
          if (ttl === undefined || !isFree) {
            const result = { inputHash, answer, claimed: undefined };
            return { docs: [isNew ? entity : found], writes, result };
          }
          const waiting = await Promise.all(
            (await readMessages(id, MOST_AT_ONCE)).map((one) => toMessage(id, one)),
          );
          const messages = isNew ? [...waiting, message].slice(0, MOST_AT_ONCE) : waiting;
          const token = BigInt(before.token) + 1n;
          const claimed = {
            id,
            fence: issueFence(entityResource(id), generation, token, mark),
            state: await readState(id, before.state),
            messages,
          };
          const heldUntil = Math.ceil(now + ttl);
          return {
            docs: [{ ...entity, token: String(token), owner: mark, heldUntil }],
            writes,
            result: { inputHash, answer, claimed },
          };
        },
      });
    },

    async commit(claim, { state, answers, writes, keep }, signal) {
      const { id, fence } = claim;
      const own = toItems(writes);
      const name = nameOf(id);
      const stored = once(() => store(dynamodb, valuesOf(id), state, LONGEST_IN_HEAD, signal));
      const values = once(() =>
        Promise.all(
          answers.map(({ value }) =>
            store(dynamodb, valuesOf(id), value, LONGEST_IN_MESSAGE, signal),
          ),
        ),
      );
      const answeredIds = new Set(answers.map(({ message }) => message.operationId));
      let sent = 0;
      let refusal: Error | undefined;
      const changed = entities.change<Committed | undefined>({
        ids: [name],
        what: `messages of ${quote(entityResource(id))} were answered`,
        signal,
        async plan([entity], now): Promise<ChangePlan<EntityItem, Committed | undefined>> {
          if (!entity || !isHeld(entity, claim)) {
            const token = BigInt(entity?.token ?? 0);
            throw new FencedOutError(fence, formatFence(fence.generation, token));
          }
          // An attempt before it may be on its way: it is refused once the entity has changed.
          if (refusal) return { docs: [{ ...entity }], result: undefined };
          const inbox = await readMessages(id, MOST_AT_ONCE + answers.length);
          const numbers = new Map(inbox.map((one) => [one.operationId, one.number]));
          const isAnswered = (one: MessageItem) => answeredIds.has(one.operationId);
          const texts = await values();
          const until = timeIn(now, keep) ?? Number.MAX_SAFE_INTEGER;
          const answered = answers.flatMap(({ message, outcome }, i) => {
            const { operationId, inputHash } = message;
            const value = texts[i] ?? "";
            const operation = { inputHash, outcome, value, until };
            return answer(id, operationId, operation, numbers.get(operationId));
          });
          const waiting = inbox.filter((one) => !isAnswered(one)).slice(0, MOST_AT_ONCE);
          const inputs = inbox.filter(isAnswered).map(({ input }) => input);
          const messages = await Promise.all(waiting.map((one) => toMessage(id, one)));
          const after: EntityItem = {
            ...entity,
            state: await stored(),
            heldUntil: waiting.length > 0 ? entity.heldUntil : 0,
            waitsSince: waiting[0]?.at,
          };
          sent += 1;
          return {
            docs: [after],
            writes: [...own.map((item) => ({ item })), ...answered],
            result: { messages, inputs },
            refused({ failed }) {
              const unmet = own.find((_, i) => failed[i]);
              if (!unmet) return;
              refusal = refusedItem(unmet);
              if (sent === 1) throw refusal;
            },
          };
        },
      });
      const committed = await changed.catch((error) => {
        // Nothing of Lockstep's is refused here: the claim has just been written to the same table.
        const isTheirs = own.length > 0 && hasCode(error, "STORE_REFUSED");
        throw isTheirs ? transactionRefused(error.message, error) : error;
      });
      if (!committed) throw refusal;
      const { messages, inputs } = committed;
      await Promise.all(inputs.map((input) => deleteChunks(id, input))).catch(() => {});
      return messages;
    },

    renew: (claim, ttl, signal) =>
      entities.change<boolean>({
        ids: [nameOf(claim.id)],
        what: `${quote(entityResource(claim.id))} was renewed`,
        signal,
        fromMemory: true,
        plan([entity], now) {
          if (!entity || !isHeld(entity, claim) || entity.heldUntil === 0) return { result: false };
          const heldUntil = Math.max(entity.heldUntil, Math.ceil(now + ttl));
          return { docs: [{ ...entity, heldUntil }], result: true };
        },
      }),

    release: (claim) =>
      entities.change<void>({
        ids: [nameOf(claim.id)],
        what: `${quote(entityResource(claim.id))} was released`,
        plan([entity]) {
          if (!entity || !isHeld(entity, claim)) return { result: undefined };
          return { docs: [{ ...entity, heldUntil: 0 }], result: undefined };
        },
      }),

    read: (id, operationId, signal) =>
      readUntorn(async () => {
        const entity = await read(id, signal);
        const [known] = operationId === undefined ? [] : await readOperations(id, [operationId]);
        return {
          state: await readState(id, entity?.state),
          answer: known && (await toAnswer(id, known)),
          freeIn: Math.max(0, (entity?.heldUntil ?? 0) - clock.now()),
        };
      }),

    async waiting(names, limit) {
      const places = names.flatMap((entity) => SHARDS.map((shard) => ({ entity, shard })));
      // More are read only where other processes have the turns of these.
      for (let most = limit; ; most *= 4) {
        const longest = await Promise.all(places.map((place) => readWaiting(place, most)));
        const free: EntityId[] = [];
        for (const { entity, key } of longest.flat().sort((a, b) => a.time - b.time)) {
          if (free.length === limit) break;
          const found = await read({ entity, key });
          const isFree = found?.waitsSince !== undefined && found.heldUntil <= clock.now();
          if (isFree) free.push({ entity, key });
        }
        const areAll = longest.every(({ length }) => length < most);
        if (areAll || free.length === limit) return free;
      }
    },

    async purge(limit) {
      let purged = 0;
      for (const shard of SHARDS) {
        const to = endOf(timed(clock.now(), ""));
        const expired = await readRange(dynamodb, { pk: `answers/${shard}`, from: "0", to });
        for (const { pk = "", sk = "", entity = "", key = "", operationId = "" } of expired) {
          if (purged === limit) return purged;
          const id = { entity, key };
          const place = operationPlace(id, operationId);
          const text = (await dynamodb.get(place))?.text ?? "{}";
          const { value, until = Number.POSITIVE_INFINITY }: Partial<OperationItem> =
            JSON.parse(text);
          // Otherwise the operation was purged before, and perhaps delivered again.
          const isExpired = until <= clock.now();
          const gone = { key: place, when: "#text = :text", values: { text } };
          await writeAgain(dynamodb, [...(isExpired ? [gone] : []), { key: { pk, sk } }]);
          if (isExpired) await deleteChunks(id, value);
          purged += 1;
        }
      }
      return purged;
    },
  };

  async function readWaiting({ entity, shard }: { entity: string; shard: string }, most: number) {
    const range = { pk: waitingPlace(shard, entity), from: "0", to: endOf("9"), limit: most };
    const found: (EntityId & { readonly time: number })[] = [];
    for await (const { items } of dynamodb.query(range)) {
      for (const { sk = "" } of items) {
        const { time, id: key } = fromTimed(sk);
        found.push({ entity, key, time });
      }
      if (found.length >= most) break;
    }
    return found;
  }

  async function deleteChunks(id: EntityId, stored: Stored | undefined): Promise<void> {
    if (typeof stored !== "object") return;
    const { at } = stored;
    await deleteRange(dynamodb, { pk: partitionOf(id), from: at, to: endOf(at) });
  }
}

function toItems(writes: readonly EntityWrite[]): readonly TransactWriteItem[] {
  const items = writes.map((write: unknown) => {
    checkItem(write);
    return write;
  });
  if (items.length <= MOST_WRITES) return items;
  const problem = `a handler has at most ${MOST_WRITES} \`writes\`, not ${writes.length}`;
  throw transactionRefused(problem);
}
