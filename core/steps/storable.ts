import SuperJSON, { type SuperJSONResult } from "superjson";
import { fromBase64, toBase64 } from "../lock/base64.ts";

/** JSON that keeps dates, bigints, maps, sets, undefined, binary data and errors with their causes. */
const json = new SuperJSON();

/** Returns JSON text. Throws a TypeError that names the path of a part that decoding would not restore. */
export function toText(value: unknown): string {
  if (isJson(value, new Set())) return `{"json":${JSON.stringify(value)}}`;
  return json.stringify(toStorable(value, "", new Map()));
}

/** Throws a TypeError or SyntaxError for a text that `toText` has not made. */
export function fromText<T>(text: string): T {
  const parsed: unknown = JSON.parse(text);
  if (typeof parsed !== "object" || parsed === null || !Object.hasOwn(parsed, "json")) {
    throw new TypeError("the text has no member `json`");
  }
  const { json: plain, meta } = parsed as SuperJSONResult;
  return meta === undefined ? (plain as T) : json.deserialize<T>({ json: plain, meta });
}

/** Returns JSON that is the same for equal values, and its types. */
export function toComparable(value: unknown): { readonly json: unknown; readonly types: unknown } {
  if (isJson(value, new Set())) return { json: value, types: undefined };
  // Leaves out which parts are the same object: the value does not depend on it.
  const { json: plain, meta } = json.serialize(toStorable(value, "", new Map()));
  return { json: plain, types: meta?.values };
}

/** Whether JSON alone restores the value. `seen` finds parts that occur several times. */
function isJson(value: unknown, seen: Set<object>): boolean {
  if (typeof value === "string" || typeof value === "boolean" || value === null) return true;
  if (typeof value === "number") return Number.isFinite(value) && !Object.is(value, -0);
  if (typeof value !== "object" || seen.has(value)) return false;
  seen.add(value);
  const keys = Object.keys(value);
  if (Array.isArray(value)) {
    const isUsual =
      Object.getPrototypeOf(value) === Array.prototype && keys.length === value.length;
    return isUsual && !hasSymbols(value) && value.every((one) => isJson(one, seen));
  }
  const prototype = Object.getPrototypeOf(value);
  if ((prototype !== Object.prototype && prototype !== null) || hasSymbols(value)) return false;
  return keys.every((key) => !RISKY.has(key) && isJson(value[key as keyof typeof value], seen));
}

function hasSymbols(value: object): boolean {
  return Object.getOwnPropertySymbols(value).length > 0;
}

/** Copies by their originals: a part may occur several times, or contain itself. */
type Copies = Map<object, unknown>;

/** Copies the value without what has no meaning beyond this process. */
function toStorable(value: unknown, path: string, copies: Copies): unknown {
  if (typeof value === "function" || typeof value === "symbol") refuse(path, `a ${typeof value}`);
  if (typeof value !== "object" || value === null) return value;
  if (copies.get(value) === UNFINISHED) refuse(path, `${describe(value)} that contains itself`);
  if (copies.has(value)) return copies.get(value);
  if (value instanceof Date && Number.isNaN(value.getTime())) refuse(path, "an invalid date");
  if (isBinary(value)) {
    const type = binaryType(value);
    return Object.hasOwn(BINARIES, type) ? value : refuse(path, `a ${type}`);
  }
  checkClass(value, path);
  if (LEAVES.some((Class) => value instanceof Class)) return value;
  return copyOf(value, path, copies);
}

const LEAVES = [Date, RegExp, URL];

/** In place of the copy of a part that is not stored as an object of its own. */
const UNFINISHED = Symbol("unfinished");

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

const BASES = [Map, Set, ...LEAVES];

function copyOf(value: object, path: string, copies: Copies): unknown {
  const keep = <T>(copy: T): T => {
    copies.set(value, copy);
    return copy;
  };
  const part = (one: unknown, where: string) => toStorable(one, `${path}${where}`, copies);
  if (Array.isArray(value)) {
    const copy = keep<unknown[]>([]);
    for (const [index, one] of value.entries()) copy.push(part(one, `[${index}]`));
    return copy;
  }
  if (value instanceof Map) {
    const copy = keep(new Map());
    for (const [key, one] of value)
      copy.set(part(key, ".keys()"), part(one, `.get(${String(key)})`));
    return copy;
  }
  if (value instanceof Set) {
    const copy = keep(new Set());
    for (const one of value) copy.add(part(one, ".values()"));
    return copy;
  }
  if (value instanceof Error) {
    keep(UNFINISHED);
    return keep(new ErrorParts(errorParts(value, part)));
  }
  const entries = Object.entries(value);
  if (entries.some(([key]) => RISKY.has(key))) {
    keep(UNFINISHED);
    return keep(new Entries(entries.map(([key, one]) => [key, part(one, `.${key}`)])));
  }
  const copy = keep<Record<string, unknown>>({});
  for (const [key, one] of entries) copy[key] = part(one, `.${key}`);
  return copy;
}

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

/** Keys that superjson refuses, since they could change prototypes. */
const RISKY = new Set(["__proto__", "constructor", "prototype"]);

/** The entries of an object that has such keys. */
class Entries {
  readonly list: readonly (readonly [string, unknown])[];

  constructor(list: readonly (readonly [string, unknown])[]) {
    this.list = list.toSorted(([a], [b]) => (a < b ? -1 : 1));
  }
}

/** A result of superjson as a JSON object: superjson does not look into what a custom transformer returns. */
type Nested = Record<string, never>;

function nest(value: unknown): Nested {
  return json.serialize(value) as unknown as Nested;
}

function unnest<T>(nested: Nested): T {
  return json.deserialize<T>(nested as unknown as Parameters<typeof json.deserialize>[0]);
}

json.registerCustom<Entries, Nested>(
  {
    isApplicable: (value): value is Entries => value instanceof Entries,
    serialize: ({ list }) => nest(list),
    deserialize: (list) => Object.fromEntries(unnest<[string, unknown][]>(list)) as never,
  },
  "object",
);

interface ErrorData {
  readonly name: string;
  readonly message: string;
  readonly code?: unknown;
  readonly cause?: unknown;
  readonly errors?: unknown;
}

class ErrorParts {
  readonly data: ErrorData;

  constructor(data: ErrorData) {
    this.data = data;
  }
}

/** Stacks are left out: they differ from one replay to the next. */
function errorParts(
  error: Error & { readonly code?: unknown },
  part: (one: unknown, where: string) => unknown,
): ErrorData {
  const { name, message, code, cause } = error;
  return {
    name,
    message,
    ...(typeof code === "string" && { code }),
    ...(cause !== undefined && { cause: part(cause, ".cause") }),
    ...(error instanceof AggregateError && { errors: part(error.errors, ".errors") }),
  };
}

const ERRORS = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function toError({ name, message, code, cause, errors }: ErrorData): Error {
  const options = cause === undefined ? undefined : { cause };
  const Class = Object.hasOwn(ERRORS, name) ? ERRORS[name as keyof typeof ERRORS] : Error;
  const error = Array.isArray(errors)
    ? new AggregateError(errors, message, options)
    : new Class(message, options);
  if (error.name !== name) error.name = name;
  return code === undefined ? error : Object.assign(error, { code });
}

json.registerCustom<ErrorParts, Nested>(
  {
    isApplicable: (value): value is ErrorParts => value instanceof ErrorParts,
    serialize: ({ data }) => nest(data),
    deserialize: (data) => toError(unnest<ErrorData>(data)) as never,
  },
  "error",
);

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

json.registerCustom<ArrayBuffer | ArrayBufferView, { type: string; base64: string }>(
  {
    isApplicable: (value): value is ArrayBuffer | ArrayBufferView => isBinary(value),
    serialize: (value) => ({ type: binaryType(value), base64: toBase64(bytesOf(value)) }),
    deserialize: ({ type, base64 }) => {
      const make = BINARIES[type];
      if (!make) throw new TypeError(`binary data of the type ${type} is unknown`);
      return make(fromBase64(base64)) as never;
    },
  },
  "binary",
);

function binaryType(value: ArrayBuffer | ArrayBufferView): string {
  if (NodeBuffer?.isBuffer(value)) return "Buffer";
  return Object.prototype.toString.call(value).slice("[object ".length, -1);
}

function bytesOf(value: ArrayBuffer | ArrayBufferView): Uint8Array {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}
