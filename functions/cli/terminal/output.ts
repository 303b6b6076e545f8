import { redact } from "../../../infra/redact.ts";

/** Prints the result of a command on standard output. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Prints progress on standard error if that is a terminal. */
export function note(line: string): void {
  if (process.stderr.isTTY) process.stderr.write(`${line}\n`);
}

/** Prints a warning, or a line of a log, on standard error, without the credentials of URLs. */
export function warn(line: string): void {
  process.stderr.write(`lockstep: ${redact(line)}\n`);
}
