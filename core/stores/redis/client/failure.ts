import {
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../../lock/errors.ts";

/** The failure of a command. It never contains the command, which may be AUTH with the password. */
export class CommandFailure extends Error {
  readonly kind: FailureKind;

  constructor(why: FailureKind, message: string) {
    super(message);
    this.kind = why;
  }

  /** The first word of the server's error. */
  get code(): string {
    return this.kind === "answered" ? (this.message.split(" ", 1)[0] ?? "") : "";
  }
}

/**
 * `answered`: the server answered with an error. `unusable`: no command can be sent, because a certificate or token
 * is not accepted, or a package is missing. `unsent`: the command was certainly not sent. `unanswered`: it was sent.
 */
type FailureKind = "answered" | "unusable" | "unsent" | "unanswered";

/** Returns the failure of a connection, with the error of the client package or of Node. */
export function connectionFailure(
  error: unknown,
  otherwise: "unsent" | "unanswered",
): CommandFailure {
  const { message, code = "" } = error as Error & { readonly code?: string };
  const isUntrusted = otherwise === "unsent" && /SSL|TLS|CERT|SIGNATURE/.test(code);
  return new CommandFailure(isUntrusted ? "unusable" : otherwise, message || code);
}

/**
 * The errors that refuse a command for now, before it has changed anything.
 *
 * Redis, src/server.c, `processCommand` rejects with them before it calls the command. src/script.c,
 * `scriptVerifyWriteCommandAllow` and `scriptVerifyOOM` check a script for them only before its first write.
 */
const TEMPORARY: Readonly<Record<string, string>> = {
  ASK: "the keys of this prefix are being moved to another node of the cluster",
  BUSY: "a script has kept it busy for long",
  CLUSTERDOWN: "the cluster is down",
  LOADING: "it loads its data",
  MASTERDOWN: "it is a replica without its primary",
  MISCONF: "it cannot save its data, and takes no writes",
  NOREPLICAS: "too few replicas are in sync",
  OOM: "its memory is used up: raise maxmemory",
  READONLY: "it is a replica",
  TRYAGAIN: "a slot of the cluster is being moved",
};

/** Whether the server refuses the command for now. */
export function isTemporary({ code }: CommandFailure): boolean {
  return Object.hasOwn(TEMPORARY, code);
}

/** The other errors that refuse a command before it has changed anything, with their meaning. */
const REFUSALS: Readonly<Record<string, string>> = {
  // src/cluster.c, clusterRedirectClient: called by processCommand.
  CROSSSLOT: "the keys are in several slots of the cluster",
  MOVED: "the keys of this prefix are on another node of the cluster",
  // src/networking.c, clientAcceptHandler: the connection is refused.
  DENIED: "it is in protected mode",
  // src/multi.c, execCommand: the transaction is discarded.
  EXECABORT: "the transaction was discarded",
  // processCommand. In a script, Redis 7 says ERR for the same.
  NOAUTH: "it wants a password",
  NOPERM: "the user has too few permissions",
  // src/eval.c, evalGenericCommand: before the script is run.
  NOSCRIPT: "it does not know the script",
  // src/script.c, scriptKill.
  NOTBUSY: "no script is running",
  UNKILLABLE: "the script has written, or is the primary's",
};

/** Returns the error for users; `sha1` is the hash of the script, if the command ran one. */
export function toError(
  address: string,
  failure: CommandFailure,
  { reads, sha1 }: { readonly reads: boolean; readonly sha1?: string | undefined },
): Error {
  const { kind, code, message } = failure;
  if (kind === "unsent") return new StoreUnavailableError(address, message, failure);
  if (kind === "unusable") return new StoreRefusedError(address, message, failure);
  if (kind === "unanswered" && reads) return new StoreUnavailableError(address, message, failure);
  // src/networking.c, acceptCommonHandler: the connection is refused.
  if (message.startsWith("ERR max number of clients")) {
    return new StoreUnavailableError(address, "it has too many clients", failure);
  }
  const temporary = TEMPORARY[code];
  if (temporary !== undefined) return new StoreUnavailableError(address, temporary, failure);
  const problem = REFUSALS[code];
  if (problem) return new StoreRefusedError(address, `${problem}: ${message}`, failure);
  if (kind === "answered" && (reads || isFromScript(message, sha1) || isMalformed(message))) {
    return new StoreRefusedError(address, message, failure);
  }
  return new UnknownOutcomeError(address, "a command was executed", failure);
}

/**
 * Whether the script itself has failed: src/script_lua.c, luaCallFunction puts its SHA-1 into the message. A failed
 * script has changed nothing (`Redis.run`). The errors of a proxy, such as "ERR Connection timed out", have no SHA-1.
 */
function isFromScript(message: string, sha1 = "?"): boolean {
  return message.includes(sha1);
}

/**
 * src/server.c, commandCheckExistence and commandCheckArity: called by processCommand. src/eval.c, luaCreateFunction:
 * before the script is run.
 */
function isMalformed(message: string): boolean {
  return /^ERR (unknown command|wrong number of arguments|Error compiling script)/.test(message);
}
