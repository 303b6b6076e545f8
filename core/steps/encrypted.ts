import { concatBytes } from "@noble/hashes/utils.js";
import type { Bytes } from "../lock/base64.ts";
import { wrongType } from "../lock/checks.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";

export interface EncryptedOptions {
  /** AES keys of 32 bytes, by id. An id has 1 to 255 bytes, and is stored with each value. */
  readonly keys: Readonly<Record<string, Uint8Array>>;

  /** The id of the key that encrypts new values. Undefined: new values are not encrypted. */
  readonly current: string | undefined;
}

const ENCRYPTED_OPTIONS = { keys: true, current: true } satisfies OptionNames<EncryptedOptions>;

/** The nonce of AES-GCM: random, and fresh for each value. */
const NONCE_LENGTH = 12;

const utf8 = new TextEncoder();

export function encrypted(options: EncryptedOptions) {
  checkOptionNames("Codec.encrypted", options, ENCRYPTED_OPTIONS);
  const { keys, current }: Partial<EncryptedOptions> = options ?? {};
  if (typeof keys !== "object" || keys === null) {
    throw wrongType("keys", "an object such as { k1: key }", keys);
  }
  const imported = new Map(Object.entries(keys).map(([id, key]) => [id, importer(id, key)]));
  const currentKey = current === undefined ? undefined : imported.get(current);
  if (current !== undefined && !currentKey) {
    throw new RangeError(
      `current must be the id of one of the keys, not ${JSON.stringify(current)}`,
    );
  }
  return {
    id: "encrypted",
    async encode(value: Bytes, scope: string) {
      if (!currentKey) return undefined;
      const id = utf8.encode(current);
      const iv = crypto.getRandomValues(new Uint8Array(NONCE_LENGTH));
      const sealed = await crypto.subtle.encrypt(algorithm(iv, scope), await currentKey(), value);
      return concatBytes(Uint8Array.of(id.length), id, iv, new Uint8Array(sealed));
    },
    async decode(bytes: Bytes, scope: string) {
      const [length = 0] = bytes;
      const id = new TextDecoder().decode(bytes.subarray(1, 1 + length));
      const key = imported.get(id);
      if (!key) throw new Error(`the key ${JSON.stringify(id)} is missing; add it to \`keys\``);
      const iv = bytes.slice(1 + length, 1 + length + NONCE_LENGTH);
      const sealed = bytes.slice(1 + length + NONCE_LENGTH);
      const opened = crypto.subtle.decrypt(algorithm(iv, scope), await key(), sealed);
      return new Uint8Array(
        await opened.catch(() => {
          const problem = `the key ${JSON.stringify(id)} does not open it as a value of ${scope}`;
          throw new Error(`${problem}: it was changed, moved, or encrypted with another key`);
        }),
      );
    },
  };
}

function algorithm(iv: Bytes, scope: string) {
  return { name: "AES-GCM", iv, additionalData: utf8.encode(scope) };
}

type Key = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

/** Returns a function that imports the key once. Throws a RangeError for a bad key. */
function importer(id: string, key: Uint8Array): () => Promise<Key> {
  const length = utf8.encode(id).length;
  if (length < 1 || length > 255) {
    throw new RangeError(`the id of a key must have 1 to 255 bytes, not ${length}`);
  }
  if (!(key instanceof Uint8Array) || key.length !== 32) {
    throw new RangeError(`the key ${JSON.stringify(id)} must be a Uint8Array of 32 bytes`);
  }
  const raw = new Uint8Array(key);
  let imported: Promise<Key> | undefined;
  return () => {
    imported ??= crypto.subtle.importKey("raw", raw, "AES-GCM", false, ["encrypt", "decrypt"]);
    return imported;
  };
}
