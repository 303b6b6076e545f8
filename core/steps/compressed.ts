import type { Bytes } from "../lock/base64.ts";
import { wrongType } from "../lock/checks.ts";
import { checkOptionNames } from "../lock/options.ts";

/** Shorter values hardly shrink: an envelope of base64 takes a third more. */
const SHORTEST = 1_024;

/** The most bytes of a value: a small text may be made to grow without end. */
const LONGEST = 64 * 1_048_576;

export function compressed(options: { readonly above?: number } = {}) {
  checkOptionNames("Codec.compressed", options, { above: true });
  const { above = SHORTEST } = options;
  if (typeof above !== "number" || !(above >= 0))
    throw wrongType("above", "a number of bytes", above);
  return {
    id: "compressed",
    async encode(value: Bytes) {
      if (value.length < above || value.length > LONGEST) return undefined;
      const bytes = await read(value, new CompressionStream("deflate-raw"));
      // The envelope of base64 takes a third more.
      return bytes.length * 4 < value.length * 3 ? bytes : undefined;
    },
    decode: (bytes: Bytes) => read(bytes, new DecompressionStream("deflate-raw")),
  };
}

async function read(
  bytes: Bytes,
  through: CompressionStream | DecompressionStream,
): Promise<Bytes> {
  const chunks: Bytes[] = [];
  let size = 0;
  for await (const chunk of new Blob([bytes]).stream().pipeThrough(through)) {
    size += chunk.length;
    if (size > LONGEST) throw new RangeError(`the value has more than ${LONGEST} bytes`);
    chunks.push(chunk);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}
