/** A zero for "not compressed", and the length of the message. */
const PREFIX = 5;

/** Puts the prefix of gRPC before a message. */
export function toFrame(message: Uint8Array): Uint8Array {
  const frame = Buffer.allocUnsafe(PREFIX + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, PREFIX);
  return frame;
}

/** Finds the messages in the chunks of a stream. */
export class Frames {
  #chunks: Buffer[] = [];
  #size = 0;

  /** The bytes that the next message takes, or its prefix. */
  #needed = PREFIX;

  /** Returns the messages that end in the next chunk. */
  take(chunk: Buffer): readonly Uint8Array[] {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    const messages: Uint8Array[] = [];
    while (this.#size >= this.#needed) {
      const [only] = this.#chunks;
      const bytes = only && this.#chunks.length === 1 ? only : Buffer.concat(this.#chunks);
      const end = PREFIX + bytes.readUInt32BE(1);
      const isWhole = bytes.length >= end;
      if (isWhole) messages.push(bytes.subarray(PREFIX, end));
      const rest = isWhole ? bytes.subarray(end) : bytes;
      this.#chunks = [rest];
      this.#size = rest.length;
      this.#needed = isWhole ? PREFIX : end;
    }
    return messages;
  }
}
