import { sha256 as digest } from "@noble/hashes/sha2.js";

const utf8 = new TextEncoder();

/** The hash of a text's UTF-8. A library's, because the Web's own can only be waited for. */
export function sha256(text: string): Uint8Array {
  return digest(utf8.encode(text));
}
