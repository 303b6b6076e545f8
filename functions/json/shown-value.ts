import { decode, decodeError } from "../../core/steps/codec.ts";
import { describeSealed, isSealed } from "../../core/steps/envelope.ts";
import { type ErrorInfo, isTerminal } from "../../core/steps/errors.ts";
import { redact } from "../../infra/redact.ts";

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

/** Decodes an error of the journal in the same way, without the credentials of URLs: messages quote their origin. */
export function shownError(text: string | undefined): ErrorInfo {
  if (text === undefined || !isSealed(text)) return withoutCredentials(decodeError(text));
  const { codec, bytes } = describeSealed(text);
  return { name: codec, message: `${bytes} bytes` };
}

/** Decodes what the record of a failure holds, in the same way: an error, or that of an attempt and the pause after it. */
export function shownFailure(text: string | undefined): unknown {
  const value = shownValue(text) as Failure | undefined;
  if (value?.error === undefined) return value && withoutCredentials(value);
  return { ...value, error: withoutCredentials(value.error) };
}

interface Failure extends Partial<ErrorInfo> {
  readonly error?: ErrorInfo;
}

function withoutCredentials<E extends Partial<ErrorInfo>>(error: E): E {
  return error.message === undefined ? error : { ...error, message: redact(error.message) };
}
