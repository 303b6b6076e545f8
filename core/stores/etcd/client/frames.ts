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

/** Finds the messages in the pieces of a stream. */
export class Frames {
  #pieces: Buffer[] = [];
  #size = 0;

  /** The bytes that the next message takes, or its prefix. */
  #needed = PREFIX;

  /** Returns the messages that end in the next piece. */
  take(piece: Buffer): readonly Uint8Array[] {
    this.#pieces.push(piece);
    this.#size += piece.length;
    const messages: Uint8Array[] = [];
    while (this.#size >= this.#needed) {
      const [only] = this.#pieces;
      const bytes = only && this.#pieces.length === 1 ? only : Buffer.concat(this.#pieces);
      const end = PREFIX + bytes.readUInt32BE(1);
      const isWhole = bytes.length >= end;
      if (isWhole) messages.push(bytes.subarray(PREFIX, end));
      const rest = isWhole ? bytes.subarray(end) : bytes;
      this.#pieces = [rest];
      this.#size = rest.length;
      this.#needed = isWhole ? PREFIX : end;
    }
    return messages;
  }
}
