import { decode, decodeError } from "../../core/steps/codec.ts";
import { describeSealed, isSealed } from "../../core/steps/envelope.ts";
import { type ErrorInfo, isTerminal } from "../../core/steps/errors.ts";

/** Decodes a value of the journal. A value that needs a codec is described: `{ codec: "encrypted", bytes: 312 }`. */
export function shownValue(text: string | undefined): unknown {
  return text !== undefined && isSealed(text) ? describeSealed(text) : decode(text);
}

/** Resolves to what `value` does, or describes it in the same way. */
export async function shownResult(value: Promise<unknown>): Promise<unknown> {
  try {
    return await value;
  } catch (error) {
    if (isTerminal(error, "UNREADABLE_VALUE") && error.data) return error.data;
    throw error;
  }
}

/** Decodes an error of the journal in the same way. */
export function shownError(text: string | undefined): ErrorInfo {
  if (text === undefined || !isSealed(text)) return decodeError(text);
  const { codec, bytes } = describeSealed(text);
  return { name: codec, message: `${bytes} bytes` };
}
