import type { Sql } from "../database/sql.ts";
import type { Fence, FencedOutError } from "../lock/fence.ts";
import type { Millis } from "../lock/time.ts";
import { keyPart } from "./key-part.ts";

/**
 * The states of entities, the messages that wait for their handlers, and the answers.
 *
 * A claim gives one process an entity's turn, until the claim's lease ends. Each claim has a greater fence than all
 * earlier ones of the entity, and a commit of an earlier claim rejects with a {@link FencedOutError}. Messages are
 * handled in the order of their arrival.
 *
 * All writes are idempotent, and repeated inside after a lost answer.
 */
export interface EntityRecords {
  /**
   * Puts the message into the entity's inbox, unless its operation id is known. With a `ttl`, also claims the entity if
   * it is free and has messages. Without a message, only the claim is tried.
   */
  visit(id: EntityId, visit: EntityVisit, signal?: AbortSignal): Promise<EntityVisitResult>;

  /**
   * Writes the state, the answers to messages and further writes in one transaction, and resolves to the next messages.
   * Without further messages, the claim is released in the same transaction.
   *
   * Rejects with the database's error when the database refuses one of the further writes, and with a TypeError for
   * those that it does not know: nothing has happened then.
   */
  commit(
    claim: EntityClaim,
    change: EntityCommit,
    signal?: AbortSignal,
  ): Promise<readonly EntityMessage[]>;

  /** Renews the claim's lease for `ttl` milliseconds. Resolves to whether the claim is still held. */
  renew(claim: EntityClaim, ttl: Millis, signal?: AbortSignal): Promise<boolean>;

  /** Frees the entity for other processes, if the claim is still held. */
  release(claim: EntityClaim): Promise<void>;

  /** Reads an entity, and the answer to one operation. */
  read(id: EntityId, operationId?: string, signal?: AbortSignal): Promise<EntityView>;

  /** Lists free entities with messages, the longest waiting first. */
  waiting(entities: readonly string[], limit: number): Promise<readonly EntityId[]>;

  /** Deletes at most `limit` answers after their `keep`. Resolves to their number. */
  purge(limit: number): Promise<number>;
}

export interface EntityId {
  /** 1 to 200 bytes, as a part of a key. */
  readonly entity: string;

  /** 1 to 255 bytes, as a part of a key. */
  readonly key: string;
}

export interface EntityMessage {
  /** 1 to 255 bytes: an operation is handled once per entity. */
  readonly operationId: string;

  /** 1 to 200 bytes. */
  readonly handler: string;

  /** Encoded. */
  readonly input: string;

  /** Identifies the handler and the input. 64 hexadecimal digits. */
  readonly inputHash: string;
}

export interface EntityVisit {
  readonly message?: EntityMessage | undefined;

  /** The length of the claim's lease without a renewal. */
  readonly ttl?: Millis | undefined;
}

export interface EntityVisitResult {
  /** The hash under the operation id, which may be that of an earlier message. Undefined without a message. */
  readonly inputHash: string | undefined;

  /** Undefined while the message waits. */
  readonly answer: EntityAnswer | undefined;

  /** Undefined if the entity has no message, or another process has its turn. */
  readonly claimed: ClaimedEntity | undefined;
}

export interface EntityClaim {
  readonly id: EntityId;
  readonly fence: Fence;
}

export interface ClaimedEntity extends EntityClaim {
  /** Encoded. Undefined before the first commit. */
  readonly state: string | undefined;

  /** The oldest messages, in the order of their arrival. */
  readonly messages: readonly EntityMessage[];
}

export interface EntityAnswer {
  readonly outcome: "ok" | "failed";

  /** Encoded: the result, or the error. */
  readonly value: string;
}

/** A statement in SQL, or an item of TransactWriteItems: `{ Put: { TableName, Item } }`. The journal's database knows one of them. */
export type EntityWrite = Sql | Readonly<Record<string, object>>;

export interface EntityCommit {
  /** Encoded. */
  readonly state: string;

  /** One or more, each of a message of the claim. */
  readonly answers: readonly (EntityAnswer & { readonly message: EntityMessage })[];

  /** Further writes for the same transaction. */
  readonly writes: readonly EntityWrite[];

  /** How long the answers are kept, and their operation ids are known. */
  readonly keep: Millis;
}

export interface EntityView {
  /** Encoded. Undefined before the first commit. */
  readonly state: string | undefined;
  readonly answer: EntityAnswer | undefined;

  /** How long another process has the entity's turn, unless it renews. 0 for a free entity. */
  readonly freeIn: Millis;
}

/** The most messages that a claim or a commit reads at a time. */
export const MOST_MESSAGES = 32;

/** Returns the name of the resource that the fences of an entity protect. */
export function entityResource({ entity, key }: EntityId): string {
  return `entity/${keyPart(entity)}/${keyPart(key)}`;
}
