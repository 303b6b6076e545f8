import type { EntityAnswer, EntityId, EntityMessage } from "../../../journal/entities.ts";
import type { ItemWrite } from "../client/dynamodb.ts";
import type { ItemKey } from "../client/items.ts";
import type { DocumentKind } from "./documents.ts";
import { padded, shardOf, timed } from "./runs.ts";
import type { Stored } from "./values.ts";

/** An entity. Its messages and answers are items of their own. */
export interface EntityItem extends EntityId {
  readonly state?: Stored | undefined;

  /** Of the last claim: a bigint. */
  readonly token: string;
  readonly owner: string;
  readonly heldUntil: number;

  /** The number of the last message. */
  readonly messages: number;

  /** The time of the oldest message that waits. */
  readonly waitsSince?: number | undefined;
}

/** A message that waits. */
export interface MessageItem extends Omit<EntityMessage, "input"> {
  readonly input: Stored;
  readonly at: number;
}

export interface NumberedMessage extends MessageItem {
  readonly number: number;
}

/** The state of an operation: its message waits, or it has an answer. */
export interface OperationItem {
  readonly inputHash: string;
  readonly outcome?: EntityAnswer["outcome"];
  readonly value?: Stored;
  readonly until?: number;
}

export const ENTITIES: DocumentKind<EntityItem> = {
  keyOf: (name) => ({ pk: `entity/${name}`, sk: "head" }),
  entriesOf: ({ entity, key, waitsSince }) =>
    waitsSince === undefined
      ? []
      : [{ pk: waitingPlace(shardOf(key), entity), sk: timed(waitsSince, key) }],
};

export function created({ entity, key }: EntityId): EntityItem {
  return { entity, key, token: "0", owner: "", heldUntil: 0, messages: 0 };
}

export function nameOf({ entity, key }: EntityId): string {
  return `${entity.length}/${entity}/${key}`;
}

export function partitionOf(id: EntityId): string {
  return ENTITIES.keyOf(nameOf(id)).pk;
}

export function valuesOf(id: EntityId): ItemKey {
  return { pk: partitionOf(id), sk: "value" };
}

export function operationPlace(id: EntityId, operationId: string): ItemKey {
  return { pk: partitionOf(id), sk: `operation/${operationId}` };
}

function inboxPlace(id: EntityId, number: number): ItemKey {
  return { pk: partitionOf(id), sk: `inbox/${padded(number)}` };
}

export function waitingPlace(shard: string, entity: string): string {
  return `inboxes/${shard}/${entity}`;
}

export function deliver(id: EntityId, number: number, message: MessageItem): readonly ItemWrite[] {
  const { operationId, inputHash } = message;
  const operation: OperationItem = { inputHash };
  return [
    {
      key: inboxPlace(id, number),
      update: "SET #text = :text",
      values: { text: JSON.stringify(message) },
    },
    {
      key: operationPlace(id, operationId),
      update: "SET #text = :text",
      when: "attribute_not_exists(#pk)",
      values: { text: JSON.stringify(operation) },
    },
  ];
}

/** Answers a message, and lets `purge` find the answer. */
export function answer(
  id: EntityId,
  operationId: string,
  operation: OperationItem & { readonly until: number },
  number: number | undefined,
): readonly ItemWrite[] {
  const { entity, key } = id;
  const shard = shardOf(key);
  return [
    ...(number === undefined ? [] : [{ key: inboxPlace(id, number) }]),
    {
      key: operationPlace(id, operationId),
      update: "SET #text = :text",
      values: { text: JSON.stringify(operation) },
    },
    {
      key: { pk: `answers/${shard}`, sk: timed(operation.until, `${nameOf(id)}/${operationId}`) },
      update: "SET #entity = :entity, #key = :key, #operationId = :operationId",
      values: { entity, key, operationId },
    },
  ];
}
