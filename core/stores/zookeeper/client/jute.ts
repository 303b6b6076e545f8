/** Writes values in ZooKeeper's encoding: big-endian, texts and bytes after their length. */
export class Writer {
  readonly #parts: Buffer[] = [];

  int(value: number): this {
    const part = Buffer.allocUnsafe(4);
    part.writeInt32BE(value);
    this.#parts.push(part);
    return this;
  }

  long(value: bigint): this {
    const part = Buffer.allocUnsafe(8);
    part.writeBigInt64BE(value);
    this.#parts.push(part);
    return this;
  }

  bool(value: boolean): this {
    this.#parts.push(Buffer.of(value ? 1 : 0));
    return this;
  }

  bytes(value: Uint8Array): this {
    this.int(value.length).#parts.push(Buffer.from(value));
    return this;
  }

  text(value: string): this {
    return this.bytes(Buffer.from(value));
  }

  /** Returns the message, after its length. */
  framed(): Buffer {
    const body = Buffer.concat(this.#parts);
    const frame = Buffer.allocUnsafe(4 + body.length);
    frame.writeInt32BE(body.length);
    body.copy(frame, 4);
    return frame;
  }

  append(other: Writer): this {
    this.#parts.push(...other.#parts);
    return this;
  }
}

/** Reads the values of a message. Throws a RangeError beyond its end. */
export class Reader {
  readonly #from: Buffer;
  #at = 0;

  constructor(from: Buffer) {
    this.#from = from;
  }

  int(): number {
    return this.#from.readInt32BE(this.#skip(4));
  }

  long(): bigint {
    return this.#from.readBigInt64BE(this.#skip(8));
  }

  bool(): boolean {
    return this.#from.readUInt8(this.#skip(1)) !== 0;
  }

  bytes(): Buffer {
    const length = this.#length();
    const start = this.#skip(length);
    return this.#from.subarray(start, start + length);
  }

  text(): string {
    const length = this.#length();
    const start = this.#skip(length);
    return this.#from.toString("utf8", start, start + length);
  }

  list<T>(one: () => T): T[] {
    return Array.from({ length: this.#length() }, one);
  }

  /** Returns 0 for a missing value, whose length is 0 or -1. */
  #length(): number {
    return Math.max(0, this.int());
  }

  #skip(length: number): number {
    const at = this.#at;
    if (at + length > this.#from.length) throw new RangeError("a message is too short");
    this.#at += length;
    return at;
  }
}
