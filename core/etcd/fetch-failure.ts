import { abandoned, CallFailure, STATUS } from "./failure.ts";

/** Why a fetch has no answer. Node says so in the error's cause; elsewhere it is not known. */
export function toFailure(error: unknown, signal: AbortSignal): CallFailure {
  if (error instanceof CallFailure) return error;
  if (signal.aborted) return abandoned(signal, false);
  const why = ((error as Error).cause ?? error) as NodeError;
  const { code = "", message } = why;
  const isUntrusted = UNTRUSTED.test(code);
  const status = isUntrusted ? STATUS.unauthenticated : STATUS.unavailable;
  const unsent = isUntrusted || isUnsent(why);
  return new CallFailure(status, message || code, { unsent, cause: error });
}

interface NodeError {
  readonly message?: string;
  readonly code?: string;
  readonly syscall?: string;

  /** One for each address of a host that has several. */
  readonly errors?: readonly NodeError[];
}

/** The codes that say that one of the two certificates is not accepted. */
const UNTRUSTED = /CERT|UNABLE_TO_/;

/** Whether there was no connection. */
function isUnsent({ code, syscall, errors }: NodeError): boolean {
  if (errors) return errors.every(isUnsent);
  return syscall === "connect" || syscall === "getaddrinfo" || code === "UND_ERR_CONNECT_TIMEOUT";
}
