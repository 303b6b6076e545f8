import { type Bytes, fromBase64, toBase64 } from "../lock/base64.ts";
import { checkFunction } from "../lock/checks.ts";
import type { Codec } from "./codecs.ts";
import { type TerminalError, unreadableValue } from "./errors.ts";

/** Encodes the text of a value for the journal. */
export type Seal = (text: string) => Promise<string>;

/** Begins a value that codecs have encoded. All other values are JSON objects. */
const MARK = "~";

/** Stands between an envelope and the reason why it could not be opened. */
const REASON = "\n";

const utf8 = new TextEncoder();
const fromUtf8 = new TextDecoder("utf-8", { fatal: true });

/** Puts values into envelopes, which name the codecs that open them: "~compressed+encrypted~BASE64". */
export class Envelopes {
  readonly #codecs: readonly Codec[];

  constructor(codecs: Codec | readonly Codec[]) {
    this.#codecs = Array.isArray(codecs) ? codecs : [codecs];
    const ids = this.#codecs.map((codec) => codec?.id);
    for (const id of ids) {
      if (/^[\w.-]{1,50}$/.test(id)) continue;
      throw new RangeError(
        `codec id ${JSON.stringify(id)} must be 1 to 50 letters, digits, -, _ or .`,
      );
    }
    for (const codec of this.#codecs) {
      checkFunction(`encode of codec ${codec?.id}`, codec?.encode);
      checkFunction(`decode of codec ${codec?.id}`, codec?.decode);
    }
    if (new Set(ids).size < ids.length) throw new RangeError(`two codecs have one id: ${ids}`);
  }

  /** Rejects with UNREADABLE_VALUE for a value that could not be opened: under another scope, nobody could. */
  async seal(text: string, scope: string): Promise<string> {
    if (isSealed(text)) throw unreadable(text);
    const ids: string[] = [];
    let bytes: Bytes = utf8.encode(text);
    for (const codec of this.#codecs) {
      const encoded = await codec.encode(bytes, scope);
      if (encoded === undefined) continue;
      bytes = encoded;
      ids.push(codec.id);
    }
    return ids.length === 0 ? text : `${MARK}${ids.join("+")}${MARK}${toBase64(bytes)}`;
  }

  sealFor(scope: string): Seal {
    return (text) => this.seal(text, scope);
  }

  /**
   * Resolves to the text of the value. A value that cannot be opened under the scope or one of the others stays in its
   * envelope, and tells the reason for the first. Rejects with the error of `others`.
   */
  async open(
    text: string,
    scope: string,
    others: () => Promise<readonly string[]> = async () => [],
  ): Promise<string> {
    if (!isSealed(text)) return text;
    const opened = await this.#tryToOpen(text, scope);
    if (!isSealed(opened)) return opened;
    for (const other of await others()) {
      const found = await this.#tryToOpen(text, other);
      if (!isSealed(found)) return found;
    }
    return opened;
  }

  async #tryToOpen(text: string, scope: string): Promise<string> {
    try {
      return await this.#open(text, scope);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      return `${text}${REASON}${reason}`;
    }
  }

  async #open(text: string, scope: string): Promise<string> {
    const { ids, base64 } = partsOf(text);
    let bytes = fromBase64(base64);
    for (const id of ids.toReversed()) {
      const codec = this.#codecs.find((one) => one.id === id);
      if (!codec) throw new Error(missing([id]));
      bytes = await codec.decode(bytes, scope);
    }
    return fromUtf8.decode(bytes);
  }
}

/** Whether codecs have encoded the value. */
export function isSealed(text: string): boolean {
  return text.startsWith(MARK);
}

/** Returns the error for a value that was not opened. */
export function unreadable(text: string): TerminalError {
  const [, reason = missing(partsOf(text).ids)] = text.split(REASON, 2);
  return unreadableValue(new Error(reason), describeSealed(text));
}

/** Describes a sealed value for people without its codec. */
export function describeSealed(text: string): { readonly codec: string; readonly bytes: number } {
  const { ids, base64 } = partsOf(text);
  return { codec: ids.join("+"), bytes: Math.floor((base64.length * 3) / 4) };
}

function partsOf(text: string): { readonly ids: readonly string[]; readonly base64: string } {
  const [, ids = "", rest = ""] = text.split(MARK, 3);
  const [base64 = ""] = rest.split(REASON, 1);
  return { ids: ids.split("+"), base64 };
}

function missing(ids: readonly string[]): string {
  return `it was encoded by ${ids.join(" and ")}; pass this codec in \`codec\``;
}
