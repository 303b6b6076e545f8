import { StoreRefusedError, StoreUnavailableError, UnknownOutcomeError } from "../lock/errors.ts";

/** Why a command has no answer, or a bad one. It never holds the command: that may be the password's. */
export class CommandFailure extends Error {
  readonly why: Why;

  constructor(why: Why, message: string) {
    super(message);
    this.why = why;
  }

  /** The first word of the server's answer. */
  get code(): string {
    return this.why === "answered" ? (this.message.split(" ", 1)[0] ?? "") : "";
  }
}

/**
 * `answered`: the server said no. `untrusted`: no connection, since a certificate is not accepted. `unsent`: it
 * certainly never left. `unanswered`: it was sent.
 */
export type Why = "answered" | "untrusted" | "unsent" | "unanswered";

/** The answers with which a server says no for now, before it has done anything. */
const PASSING: Readonly<Record<string, string>> = {
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

const REFUSALS: Readonly<Record<string, string>> = {
  ASK: "the keys of this prefix are being moved to another node of the cluster",
  MOVED: "the keys of this prefix are on another node of the cluster",
};

/** The failure as users know it. */
export function toError(address: string, failure: CommandFailure, reads: boolean): Error {
  const { why, code, message } = failure;
  if (why === "unsent") return new StoreUnavailableError(address, message, failure);
  if (why === "untrusted") return new StoreRefusedError(address, message, failure);
  if (why === "unanswered") {
    return reads
      ? new StoreUnavailableError(address, message, failure)
      : new UnknownOutcomeError(address, "a command was carried out", failure);
  }
  if (message.startsWith("ERR max number of clients")) {
    return new StoreUnavailableError(address, "it has too many clients", failure);
  }
  const passing = PASSING[code];
  if (passing !== undefined) return new StoreUnavailableError(address, passing, failure);
  const problem = REFUSALS[code];
  return new StoreRefusedError(address, problem ? `${problem}: ${message}` : message, failure);
}
