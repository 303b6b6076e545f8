export type Bytes = Uint8Array<ArrayBuffer>;

/** Node's. Other runtimes have slower ways. */
const NodeBuffer = (
  globalThis as {
    readonly Buffer?: {
      from(text: string, encoding: "base64"): Uint8Array;
      from(buffer: ArrayBufferLike, offset: number, length: number): Uint8Array;
    };
  }
).Buffer;

/** In chunks: a call takes a limited number of arguments. */
const CHUNK = 8_192;

export function toBase64(bytes: Uint8Array): string {
  if (NodeBuffer) {
    const { buffer, byteOffset, length } = bytes;
    const text: { toString(encoding: "base64"): string } = NodeBuffer.from(
      buffer,
      byteOffset,
      length,
    );
    return text.toString("base64");
  }
  let text = "";
  for (let at = 0; at < bytes.length; at += CHUNK) {
    text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  }
  return btoa(text);
}

export function fromBase64(text: string): Bytes {
  if (NodeBuffer) return new Uint8Array(NodeBuffer.from(text, "base64"));
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
