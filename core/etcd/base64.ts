import type { Bytes } from "./wire.ts";

/** Bytes as JSON carries them. */
export const base64: Bytes<string> = {
  encode(bytes) {
    let binary = "";
    // Not all at once: the arguments of one call are limited.
    for (const byte of bytes) binary += String.fromCharCode(byte);
    return btoa(binary);
  },
  decode(text) {
    const binary = atob((text ?? "") as string);
    const bytes = new Uint8Array(binary.length);
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
    return bytes;
  },
};
