import { fromBase64, toBase64 } from "../lock/base64.ts";

/**
 * JSON that keeps dates, bigints, maps, sets, undefined, binary data and errors with their causes: plain JSON beside the
 * types of those parts that JSON alone would not restore.
 */
interface StoredText {
  readonly json: unknown;
  readonly types?: Types | undefined;
}

/** A type with the types of the parts, or these alone. */
type Types = string | PartTypes | readonly [type: string, parts: PartTypes] | Shared;
type PartTypes = { readonly [key: string]: Types };

/** The first and the further places of an object that occurs several times. */
type Shared =
  | readonly [is: "as", id: number, types: Types | null]
  | readonly [is: "same", id: number];

/** The most levels of parts within parts: each takes a part of the stack. */
const MOST_LEVELS = 500;

/** Returns JSON text. Throws a TypeError that names the path of a part that decoding would not restore. */
export function toText(value: unknown): string {
  if (isJson(value)) return `{"json":${JSON.stringify(value)}}`;
  const node = new Encoder().encode(value, "");
  return JSON.stringify({ json: node.json, types: typesOf(node) } satisfies StoredText);
}

/** Throws a TypeError, RangeError or SyntaxError for a text that `toText` has not made. */
export function fromText<T>(text: string): T {
  const parsed: unknown = JSON.parse(text);
  if (typeof parsed !== "object" || parsed === null || !Object.hasOwn(parsed, "json")) {
    throw new TypeError("the text has no member `json`");
  }
  const { json, types, ...others } = parsed as StoredText;
  const [other] = Object.keys(others);
  if (other !== undefined) throw new TypeError(`the text has an unknown member \`${other}\``);
  return new Decoder().decode(json, types) as T;
}

/** Returns JSON that is the same for equal values, and its types. */
export function toComparable(value: unknown): { readonly json: unknown; readonly types: unknown } {
  if (isJson(value)) return { json: value, types: undefined };
  const node = new Encoder().encode(value, "");
  return { json: node.json, types: typesOfEqual(node) };
}

/** Whether JSON alone restores the value. `seen` finds parts that occur several times. */
function isJson(value: unknown, seen = new Set<object>(), level = 0): boolean {
  if (typeof value === "string" || typeof value === "boolean" || value === null) return true;
  if (typeof value === "number") return Number.isFinite(value) && !Object.is(value, -0);
  if (typeof value !== "object" || seen.has(value) || level >= MOST_LEVELS) return false;
  if ("toJSON" in value) return false;
  seen.add(value);
  const keys = Object.keys(value);
  if (Array.isArray(value)) {
    const isUsual =
      Object.getPrototypeOf(value) === Array.prototype &&
      keys.length === value.length &&
      // Without a member beside the elements, in place of an empty slot.
      (value.length === 0 || keys.at(-1) === `${value.length - 1}`);
    return isUsual && !hasSymbols(value) && value.every((one) => isJson(one, seen, level + 1));
  }
  const prototype = Object.getPrototypeOf(value);
  if ((prototype !== Object.prototype && prototype !== null) || hasSymbols(value)) return false;
  return keys.every((key) => isJson(value[key as keyof typeof value], seen, level + 1));
}

function hasSymbols(value: object): boolean {
  return Object.getOwnPropertySymbols(value).length > 0;
}

/** An encoded part. */
interface Node {
  json: unknown;
  readonly type?: string;
  parts: readonly (readonly [key: string, part: Node])[];

  /** Of a further place of an object: the first one. */
  readonly first?: Node;

  /** Whether that is around this one. */
  readonly isWithin?: boolean;

  /** Of an object that occurs several times. */
  id?: number;
}

class Encoder {
  /** The first place of each object. */
  readonly #known = new Map<object, Node>();
  readonly #unfinished = new Set<Node>();
  #shared = 0;

  encode(value: unknown, path: string): Node {
    if (typeof value !== "object" || value === null) return toPrimitive(value, path);
    const first = this.#known.get(value);
    return first ? this.#again(value, first, path) : this.#object(value, path);
  }

  /** The text has an object at each of its places, except within itself. */
  #again(value: object, first: Node, path: string): Node {
    const isWithin = this.#unfinished.has(first);
    if (isWithin && value instanceof Error) {
      refuse(path, `${describe(value)} that contains itself`);
    }
    first.id ??= this.#shared++;
    return { json: isWithin ? null : first.json, first, isWithin, parts: [] };
  }

  #object(value: object, path: string): Node {
    if (this.#unfinished.size >= MOST_LEVELS) {
      refuse("", `a value with more than ${MOST_LEVELS} levels`, "return flatter data");
    }
    const type = typeOf(value, path);
    const node: Node = { json: null, parts: [], ...(type !== undefined && { type }) };
    this.#known.set(value, node);
    this.#unfinished.add(node);
    Object.assign(node, this.#content(value, path));
    this.#unfinished.delete(node);
    return node;
  }

  #content(value: object, path: string): Pick<Node, "json" | "parts"> {
    const encode = (part: unknown, where: string) => this.encode(part, `${path}${where}`);
    if (value instanceof Date) return toLeaf(value.toISOString());
    if (value instanceof RegExp || value instanceof URL) return toLeaf(`${value}`);
    if (isBinary(value)) {
      return toLeaf({ type: binaryType(value), base64: toBase64(bytesOf(value)) });
    }
    if (Array.isArray(value)) return toList(value.map((part, i) => encode(part, `[${i}]`)));
    if (value instanceof Set) return toList([...value].map((part) => encode(part, ".values()")));
    if (value instanceof Map) {
      const entries = [...value].map(([key, part]) =>
        toList([encode(key, ".keys()"), encode(part, `.get(${nameOfKey(key)})`)]),
      );
      return toList(entries);
    }
    const isError = value instanceof Error;
    const members = Object.entries(isError ? errorParts(value) : value);
    const parts = members.map(([key, part]) => {
      // The members of an error's members are those of the error.
      const where = isError && key === "members" ? "" : `.${key}`;
      return [key, encode(part, where)] as const;
    });
    return { json: Object.fromEntries(parts.map(([key, { json }]) => [key, json])), parts };
  }
}

/** The key of a map in a path. An object need not have a text. */
function nameOfKey(key: unknown): string {
  return Object(key) === key ? "{…}" : String(key);
}

function toPrimitive(value: unknown, path: string): Node {
  const typed = (type: string, json: unknown) => ({ ...toLeaf(json), type });
  if (typeof value === "function" || typeof value === "symbol") refuse(path, `a ${typeof value}`);
  if (value === undefined) return typed("undefined", null);
  if (typeof value === "bigint") return typed("bigint", `${value}`);
  if (typeof value === "number" && !isJson(value)) {
    return typed("number", Object.is(value, -0) ? "-0" : `${value}`);
  }
  return toLeaf(value);
}

function toLeaf(json: unknown): Node {
  return { json, parts: [] };
}

function toList(parts: readonly Node[]): Node {
  return {
    json: parts.map(({ json }) => json),
    parts: parts.map((part, i) => [`${i}`, part]),
  };
}

/** The name of the object's type. Undefined for arrays and plain objects. Throws a TypeError for what cannot be stored. */
function typeOf(value: object, path: string): string | undefined {
  if (value instanceof Date && Number.isNaN(value.getTime())) refuse(path, "an invalid date");
  if (isBinary(value)) {
    const type = binaryType(value);
    if (!Object.hasOwn(BINARIES, type)) refuse(path, `a ${type}`);
    // Not by its prototype: test runners make several of each.
    if (value.constructor.name !== type) refuse(path, describe(value));
    return "binary";
  }
  checkClass(value, path);
  if (value instanceof Error) return "error";
  return BASES.find((Class) => value instanceof Class)?.name;
}

function typesOf({ type, parts, first, id }: Node): Types | undefined {
  if (first) return ["same", first.id as number];
  const own = toTypes(
    type,
    parts.map(([key, part]) => [key, typesOf(part)] as const),
  );
  return id === undefined ? own : ["as", id, own ?? null];
}

/** As `typesOf`, without which parts are the same object: the value does not depend on that. */
function typesOfEqual({ type, parts, first, isWithin }: Node): Types | undefined {
  if (first) return isWithin ? undefined : typesOfEqual(first);
  return toTypes(
    type,
    parts.map(([key, part]) => [key, typesOfEqual(part)] as const),
  );
}

function toTypes(
  type: string | undefined,
  parts: readonly (readonly [key: string, types: Types | undefined])[],
): Types | undefined {
  const typed = parts.filter((part): part is [string, Types] => part[1] !== undefined);
  if (typed.length === 0) return type;
  const inner = Object.fromEntries(typed);
  return type === undefined ? inner : [type, inner];
}

/** Restores the parts of parsed JSON in place. */
class Decoder {
  /** Objects that occur several times. */
  readonly #shared = new Map<number, unknown>();

  decode(json: unknown, types: Types | null | undefined, id?: number): unknown {
    if (types === undefined || types === null) return this.#keep(id, json);
    if (typeof types === "string") return this.#restore(types, json, {}, id);
    if (!isList(types)) return this.#restoreParts(this.#keep(id, json), types);
    const [type, about, own] = types;
    if (type === "as") return this.decode(json, own, about as number);
    if (type !== "same") return this.#restore(type, json, about as PartTypes, id);
    if (this.#shared.has(about as number)) return this.#shared.get(about as number);
    throw new TypeError(`there is no object ${about}`);
  }

  #keep<T>(id: number | undefined, value: T): T {
    if (id !== undefined) this.#shared.set(id, value);
    return value;
  }

  #restoreParts<T>(json: T, types: PartTypes): T {
    for (const [key, own] of Object.entries(types)) {
      if (!Object.hasOwn(json as object, key)) throw new TypeError(`there is no part ${key}`);
      const value = this.decode(json[key as keyof T], own);
      // Unlike an assignment, this changes no prototype.
      Object.defineProperty(json, key, {
        value,
        writable: true,
        enumerable: true,
        configurable: true,
      });
    }
    return json;
  }

  #restore(type: string, json: unknown, types: PartTypes, id: number | undefined): unknown {
    if (type === "Map") {
      const map = this.#keep(id, new Map());
      for (const [key, value] of this.#restoreParts(json as [unknown, unknown][], types)) {
        map.set(key, value);
      }
      return map;
    }
    if (type === "Set") {
      const set = this.#keep(id, new Set());
      for (const value of this.#restoreParts(json as unknown[], types)) set.add(value);
      return set;
    }
    const restored = this.#restoreParts(json, types);
    if (!Object.hasOwn(TYPES, type)) throw new TypeError(`the type ${type} is unknown`);
    return this.#keep(id, TYPES[type as keyof typeof TYPES](restored as never));
  }
}

function isList(types: Types): types is Extract<Types, readonly unknown[]> {
  return Array.isArray(types);
}

const TYPES = {
  undefined: () => undefined,
  bigint: (text: string) => BigInt(text),
  number: (text: string) => Number(text),
  Date: (text: string) => new Date(text),
  URL: (text: string) => new URL(text),
  RegExp(text: string) {
    const end = text.lastIndexOf("/");
    return new RegExp(text.slice(1, end), text.slice(end + 1));
  },
  error: (data: ErrorData) => toError(data),
  binary({ type, base64 }: { readonly type: string; readonly base64: string }) {
    const make = Object.hasOwn(BINARIES, type) ? BINARIES[type] : undefined;
    if (!make) throw new TypeError(`binary data of the type ${type} is unknown`);
    return make(fromBase64(base64));
  },
};

/** Throws a TypeError for an instance that would lose methods or members. */
function checkClass(value: object, path: string): void {
  if (value instanceof Error) return;
  if (!isPlain(value)) refuse(path, describe(value), adviceFor(value));
  for (const key of Object.getOwnPropertySymbols(value)) {
    const isEnumerable = Object.prototype.propertyIsEnumerable.call(value, key);
    if (isEnumerable) refuse(`${path}[${String(key)}]`, "a member whose key is a symbol");
  }
  if (isObject(value)) return;
  // Members of an array may be missing or be no elements; those of the others are not stored.
  const size = Array.isArray(value) ? value.length : 0;
  const keys = Object.keys(value);
  const other = keys[size];
  if (other !== undefined) refuse(`${path}.${other}`, `a member of ${describe(value)}`);
  const isSparse = keys.length < size || (size > 0 && keys[size - 1] !== `${size - 1}`);
  if (isSparse) refuse(path, "an array with empty slots");
}

/** Whether the value is stored by its members alone. */
function isObject(value: object): boolean {
  return !Array.isArray(value) && !BASES.some((Class) => value instanceof Class);
}

const BASES = [Map, Set, Date, RegExp, URL];

function refuse(path: string, what: string, advice = "return plain data"): never {
  const where = path === "" ? "" : `at ${path}: `;
  throw new TypeError(`${where}${what} cannot be stored; ${advice}`);
}

function describe(value: object): string {
  const { name } = (value.constructor ?? {}) as { readonly name?: unknown };
  return `an instance of ${typeof name === "string" && name !== "" ? name : "a class"}`;
}

function adviceFor(value: object): string | undefined {
  if (value instanceof Promise) return "await it";
  return "text" in value && typeof value.text === "function" ? "return its text" : undefined;
}

/** Whether the object loses nothing with its prototype. Rows of databases are instances of classes without methods. */
function isPlain(value: object): boolean {
  for (
    let prototype = Object.getPrototypeOf(value);
    prototype !== null && !STORED.has(prototype);
    prototype = Object.getPrototypeOf(prototype)
  ) {
    if (Reflect.ownKeys(prototype).some((key) => key !== "constructor")) return false;
  }
  return true;
}

/** The prototypes of what decoding restores. */
const STORED: ReadonlySet<object> = new Set(
  [Object, Array, ...BASES].map((Class) => Class.prototype),
);

interface ErrorData {
  readonly name: string;
  readonly message: string;
  readonly code?: unknown;
  readonly cause?: unknown;
  readonly errors?: unknown;

  /** The error's other members. */
  readonly members?: object;
}

/** Stacks are left out: they differ from one replay to the next. */
function errorParts(error: Error & { readonly code?: unknown }): ErrorData {
  const { name, message, code, cause } = error;
  const parts = {
    name,
    message,
    ...(typeof code === "string" && { code }),
    ...(cause !== undefined && { cause }),
    ...(error instanceof AggregateError && { errors: error.errors }),
  };
  const others = Object.entries(error).filter(
    ([key]) => key !== "stack" && !Object.hasOwn(parts, key),
  );
  return others.length === 0 ? parts : { ...parts, members: Object.fromEntries(others) };
}

const ERRORS = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function toError({ name, message, code, cause, errors, members = {} }: ErrorData): Error {
  const options = cause === undefined ? undefined : { cause };
  const Class = Object.hasOwn(ERRORS, name) ? ERRORS[name as keyof typeof ERRORS] : Error;
  const error = Array.isArray(errors)
    ? new AggregateError(errors, message, options)
    : new Class(message, options);
  if (error.name !== name) error.name = name;
  const own = code === undefined ? members : { ...members, code };
  // Unlike an assignment, this changes no prototype.
  return Object.defineProperties(error, Object.getOwnPropertyDescriptors(own));
}

function isBinary(value: unknown): value is ArrayBuffer | ArrayBufferView {
  return value instanceof ArrayBuffer || ArrayBuffer.isView(value);
}

type BytesOf = (bytes: Uint8Array<ArrayBuffer>) => unknown;

const view =
  (Class: new (buffer: ArrayBuffer) => unknown): BytesOf =>
  ({ buffer }) =>
    new Class(buffer);

/** Buffer is Node's. Elsewhere, its bytes are a Uint8Array. */
const NodeBuffer = (
  globalThis as {
    readonly Buffer?: { from(buffer: ArrayBuffer): unknown; isBuffer(value: unknown): boolean };
  }
).Buffer;

const BINARIES: Readonly<Record<string, BytesOf>> = {
  ArrayBuffer: ({ buffer }) => buffer,
  Buffer: (bytes) => NodeBuffer?.from(bytes.buffer) ?? bytes,
  DataView: view(DataView),
  Int8Array: view(Int8Array),
  Uint8Array: view(Uint8Array),
  Uint8ClampedArray: view(Uint8ClampedArray),
  Int16Array: view(Int16Array),
  Uint16Array: view(Uint16Array),
  Int32Array: view(Int32Array),
  Uint32Array: view(Uint32Array),
  Float32Array: view(Float32Array),
  Float64Array: view(Float64Array),
  BigInt64Array: view(BigInt64Array),
  BigUint64Array: view(BigUint64Array),
};

function binaryType(value: ArrayBuffer | ArrayBufferView): string {
  if (NodeBuffer?.isBuffer(value)) return "Buffer";
  return Object.prototype.toString.call(value).slice("[object ".length, -1);
}

function bytesOf(value: ArrayBuffer | ArrayBufferView): Uint8Array {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}
