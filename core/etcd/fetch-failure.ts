import { abandoned, CallFailure, STATUS } from "./failure.ts";

/** Why a fetch has no answer. Node says so in the error's cause; elsewhere it is not known. */
export function toFailure(error: unknown, signal: AbortSignal): CallFailure {
  if (error instanceof CallFailure) return error;
  if (signal.aborted) return abandoned(signal, false);
  const { cause = error } = error as { readonly cause?: NodeError };
  const { code = "", message } = cause as NodeError;
  if (UNTRUSTED.test(code)) {
    return new CallFailure(STATUS.unauthenticated, message || code, { unsent: true, cause: error });
  }
  const unsent = isUnsent(cause as NodeError);
  return new CallFailure(STATUS.unavailable, message || code, { unsent, cause: error });
}

interface NodeError {
  readonly message?: string;
  readonly code?: string;
  readonly syscall?: string;

  /** One for each address of a host that has several. */
  readonly errors?: readonly NodeError[];
}

/** One of the two certificates is not accepted, or there is no TLS at the other end. */
const UNTRUSTED = /CERT|UNABLE_TO_|WRONG_VERSION_NUMBER/;

/** Whether there was no connection. */
function isUnsent({ code, syscall, errors }: NodeError): boolean {
  if (errors) return errors.every(isUnsent);
  return syscall === "connect" || syscall === "getaddrinfo" || code === "UND_ERR_CONNECT_TIMEOUT";
}
