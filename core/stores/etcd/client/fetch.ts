import { quote } from "../../../lock/errors.ts";
import { type FetchAnswer, whyFetchFailed } from "../../fetch.ts";
import { abortFailure, CallFailure, STATUS, toForeignFailure } from "./failure.ts";
import type { Message } from "./wire.ts";

/**
 * Reads the text of an answer. Of a failure, reads no more than the JSON: after it, etcd 3.4 sends trailers, which workerd
 * takes for the beginning of the next answer on the connection; a connection is closed when its answer is not read to the
 * end.
 */
export async function textOf(response: FetchAnswer): Promise<string> {
  const { status, body } = response;
  if (status === 200 || !body) return response.text();
  const utf8 = new TextDecoder();
  let text = "";
  for await (const chunk of body) {
    text += utf8.decode(chunk, { stream: true });
    if (parse(text) !== NOTHING) break;
  }
  return text;
}

/** Yields the lines of a body. A line, or a character, may come in chunks. */
export async function* linesOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const text = new TextDecoder();
  let begun = "";
  for await (const chunk of body) {
    const lines = (begun + text.decode(chunk, { stream: true })).split("\n");
    begun = lines.pop() ?? "";
    for (const line of lines) if (line.trim() !== "") yield line;
  }
  if (begun.trim() !== "") yield begun;
}

/** Parses the message in an answer, or in one line of it. Throws the failure if the answer is one. */
export function toMessage(status: number, text: string): Message {
  const body = parse(text);
  const message = asMessage(body.result ?? body);
  // Every message of etcd has a header.
  if (status === 200 && message.header) return message;
  const answer = `HTTP ${status} ${quote(text.trim())}`;
  throw toRefusal(body) ?? toForeignFailure(status, answer, "JSON API");
}

const NOTHING: Message = {};

function parse(text: string): Message {
  try {
    return asMessage(JSON.parse(text));
  } catch {
    return NOTHING;
  }
}

function asMessage(json: unknown): Message {
  return typeof json === "object" && json !== null ? (json as Message) : {};
}

/** {error, message, code} in 3.4, {message, code} in 3.5, {error: {message, grpc_code}} within a stream. */
function toRefusal(body: Message): CallFailure | undefined {
  const { message, code, grpc_code } = { ...body, ...asMessage(body.error) };
  const status = code ?? grpc_code;
  const isRefusal = typeof status === "number" && typeof message === "string";
  return isRefusal ? new CallFailure(status, message) : undefined;
}

/** The failure of a fetch without an answer. */
export function toFailure(error: unknown, signal: AbortSignal): CallFailure {
  if (error instanceof CallFailure) return error;
  if (signal.aborted) return abortFailure(signal, false);
  const { message, isUntrusted, isUnsent } = whyFetchFailed(error);
  const status = isUntrusted ? STATUS.unauthenticated : STATUS.unavailable;
  return new CallFailure(status, message, { unsent: isUnsent, cause: error });
}
