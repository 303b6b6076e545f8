import { quote } from "../lock/errors.ts";
import { CallFailure, STATUS } from "./failure.ts";
import type { FetchAnswer } from "./gateway.ts";
import type { Message } from "./wire.ts";

/**
 * The text of an answer, and of a failure no more than its JSON. Behind that, etcd 3.4 sends trailers, which workerd takes
 * for the beginning of the next answer on the connection; one with an answer that is not read to its end is closed.
 */
export async function textOf(response: FetchAnswer): Promise<string> {
  const { status, body } = response;
  if (status === 200 || !body) return response.text();
  const utf8 = new TextDecoder();
  let text = "";
  for await (const piece of body) {
    text += utf8.decode(piece, { stream: true });
    if (isWhole(text)) break;
  }
  return text;
}

function isWhole(text: string): boolean {
  return parse(text) !== NOTHING;
}

const NOTHING: Message = {};

/** The message that an answer, or one line of it, consists of; throws the failure that it is otherwise. */
export function toMessage(status: number, text: string): Message {
  const body = parse(text);
  const message = asMessage(body.result ?? body);
  // Every message of etcd's has a header.
  if (status === 200 && message.header) return message;
  throw toRefusal(body) ?? toStranger(status, text);
}

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

/** Somebody else's answer: that of a proxy which may have passed the request on, or no trace of etcd at all. */
function toStranger(status: number, text: string): CallFailure {
  const answer = `HTTP ${status} ${quote(text.trim())}`;
  return status >= 500 || status === 408 || status === 429
    ? new CallFailure(STATUS.unavailable, answer)
    : new CallFailure(STATUS.unimplemented, `this is not etcd's JSON API: ${answer}`);
}
