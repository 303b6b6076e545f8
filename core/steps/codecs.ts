import type { Bytes } from "../lock/base64.ts";
import { compressed } from "./compressed.ts";
import { type EncryptedOptions, encrypted } from "./encrypted.ts";

/**
 * Encodes the values of runs and entities for the journal, such as to encrypt or to compress them.
 *
 * `scope` is the id of the run, or "entity/NAME/KEY": a value is decoded with the scope that it was encoded with.
 */
export interface Codec {
  /** Stands before each value that the codec has encoded. 1 to 50 letters, digits, "-", "_" and ".". */
  readonly id: string;

  /** Undefined leaves the value as it is. */
  encode(value: Bytes, scope: string): Bytes | undefined | Promise<Bytes | undefined>;

  /** Rejects for bytes that `encode` has not made: the run is blocked, and tried again. */
  decode(bytes: Bytes, scope: string): Bytes | Promise<Bytes>;
}

/** Ready-made codecs. */
export const Codec: {
  /** Makes a codec that compresses values of `above` bytes or more, if that makes them shorter. Default 1,024. */
  compressed(options?: { readonly above?: number }): Codec;

  /**
   * Makes a codec that encrypts values with AES-256-GCM. A value of one run is not accepted in another.
   *
   * To change the key, add the new one to `keys` in all processes, then make it `current`; remove the old one when no
   * value needs it any more. One key is for 2^32 values.
   */
  encrypted(options: EncryptedOptions): Codec;
} = { compressed, encrypted };
