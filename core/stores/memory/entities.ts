import {
  type ClaimedEntity,
  type EntityAnswer,
  type EntityId,
  type EntityMessage,
  type EntityRecords,
  entityResource,
  MOST_MESSAGES,
} from "../../journal/entities.ts";
import { type Fence, FencedOutError, issueFence } from "../../lock/fence.ts";
import type { Millis } from "../../lock/time.ts";

interface StoredEntity {
  readonly id: EntityId;
  state: string | undefined;
  fence: Fence | undefined;
  heldUntil: Millis;
  readonly inbox: Map<string, Waiting>;
  readonly answers: Map<string, Answer>;
}

interface Waiting {
  readonly message: EntityMessage;
  readonly since: Millis;
}

interface Answer extends EntityAnswer {
  readonly inputHash: string;
  readonly until: Millis;
}

/** Opens the records of entities in this process's memory: the reference implementation. */
export function memoryEntities(): EntityRecords {
  const entities = new Map<string, StoredEntity>();

  const find = (id: EntityId): StoredEntity => {
    const resource = entityResource(id);
    const known = entities.get(resource) ?? create(id);
    entities.set(resource, known);
    return known;
  };

  const held = ({ id, fence }: { readonly id: EntityId; readonly fence: Fence }): StoredEntity => {
    const entity = find(id);
    if (entity.fence === fence) return entity;
    throw new FencedOutError(fence, String(entity.fence));
  };

  return {
    async visit(id, { message, ttl }) {
      const entity = find(id);
      const answer = message && entity.answers.get(message.operationId);
      if (message && !answer && !entity.inbox.has(message.operationId)) {
        entity.inbox.set(message.operationId, { message, since: performance.now() });
      }
      const waiting = message && entity.inbox.get(message.operationId)?.message;
      return {
        inputHash: (answer ?? waiting)?.inputHash,
        answer: answer && toAnswer(answer),
        claimed: ttl === undefined ? undefined : claim(entity, ttl),
      };
    },

    async commit({ id, fence }, { state, answers, writes, keep }) {
      const entity = held({ id, fence });
      if (writes.length > 0) {
        throw new TypeError("`writes` of a handler need a journal in a database");
      }
      entity.state = state;
      for (const { message, outcome, value } of answers) {
        const { operationId, inputHash } = message;
        entity.inbox.delete(operationId);
        entity.answers.set(operationId, {
          ...{ outcome, value, inputHash },
          until: performance.now() + keep,
        });
      }
      const next = oldest(entity);
      if (next.length === 0) entity.heldUntil = 0;
      return next;
    },

    async renew({ id, fence }, ttl) {
      const entity = find(id);
      if (entity.fence !== fence || entity.heldUntil === 0) return false;
      entity.heldUntil = Math.max(entity.heldUntil, performance.now() + ttl);
      return true;
    },

    async release({ id, fence }) {
      const entity = find(id);
      if (entity.fence === fence) entity.heldUntil = 0;
    },

    async read(id, operationId = "") {
      const { state, answers, heldUntil } = find(id);
      const freeIn = Math.max(0, heldUntil - performance.now());
      const answer = answers.get(operationId);
      return { state, answer: answer && toAnswer(answer), freeIn };
    },

    async waiting(names, limit) {
      return [...entities.values()]
        .filter((one) => names.includes(one.id.entity) && one.inbox.size > 0 && isFree(one))
        .sort((a, b) => waitsSince(a) - waitsSince(b))
        .slice(0, limit)
        .map(({ id }) => id);
    },

    async purge(limit) {
      const expired = [...entities.values()]
        .flatMap(({ answers }) =>
          [...answers].map(([operationId, answer]) => ({ answers, operationId, answer })),
        )
        .filter(({ answer }) => answer.until <= performance.now())
        .slice(0, limit);
      for (const { answers, operationId } of expired) answers.delete(operationId);
      return expired.length;
    },
  };
}

function create(id: EntityId): StoredEntity {
  return {
    ...{ id, state: undefined, fence: undefined, heldUntil: 0 },
    inbox: new Map(),
    answers: new Map(),
  };
}

function claim(entity: StoredEntity, ttl: Millis): ClaimedEntity | undefined {
  if (entity.inbox.size === 0 || !isFree(entity)) return undefined;
  const { id, state } = entity;
  const token = (entity.fence?.token ?? 0n) + 1n;
  const fence = issueFence(entityResource(id), 0, token, crypto.randomUUID());
  entity.fence = fence;
  entity.heldUntil = performance.now() + ttl;
  return { id, fence, state, messages: oldest(entity) };
}

function toAnswer({ outcome, value }: Answer): EntityAnswer {
  return { outcome, value };
}

function isFree({ heldUntil }: StoredEntity): boolean {
  return heldUntil <= performance.now();
}

function oldest({ inbox }: StoredEntity): readonly EntityMessage[] {
  return [...inbox.values()].slice(0, MOST_MESSAGES).map(({ message }) => message);
}

/** The time of the oldest message. */
function waitsSince({ inbox }: StoredEntity): Millis {
  const [first] = inbox.values();
  return first?.since ?? Number.POSITIVE_INFINITY;
}
