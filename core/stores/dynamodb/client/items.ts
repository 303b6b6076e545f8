/** The values of attributes: texts and numbers. */
export type AttributeValue = string | number | bigint;

/** An item as it was read: numbers are texts, because some have more digits than a JavaScript number. */
export type Item = Readonly<Record<string, string>>;

/** The primary key of an item: the partition, and the place in it. */
export interface ItemKey {
  readonly pk: string;
  readonly sk: string;
}

/** The wire's form of a value. */
type Attribute = { readonly S: string } | { readonly N: string };

export type Attributes = Readonly<Record<string, Attribute>>;

export function toAttributes(values: Readonly<Record<string, AttributeValue>>): Attributes {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [
      name,
      typeof value === "string" ? { S: value } : { N: String(value) },
    ]),
  );
}

export function toItem(attributes: Attributes): Item {
  return Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [name, "S" in value ? value.S : value.N]),
  );
}

/** Expressions name attributes as `#name` and values as `:name`. */
export interface Expressions {
  readonly values?: Readonly<Record<string, AttributeValue>>;
}

/** Returns the names and the values that the expressions use: DynamoDB refuses others. */
export function placeholders(values: Expressions["values"] = {}, ...expressions: string[]) {
  const text = expressions.join(" ");
  const names = [...text.matchAll(/#(\w+)/g)].map(([place, name]) => [place, name]);
  const used = [...text.matchAll(/:(\w+)/g)].map(([place, name = ""]) => [
    place,
    values[name] as AttributeValue,
  ]);
  return {
    ...(names.length > 0 && { ExpressionAttributeNames: Object.fromEntries(names) }),
    ...(used.length > 0 && {
      ExpressionAttributeValues: toAttributes(Object.fromEntries(used)),
    }),
  };
}
