import { redact } from "../../../infra/redact.ts";
import { escapeControls } from "../../display/escape-controls.ts";

/** Prints the result of a command on standard output. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Prints progress on standard error if that is a terminal, without the credentials of URLs. */
export function note(line: string): void {
  if (process.stderr.isTTY) process.stderr.write(`${escapeControls(redact(line))}\n`);
}

/** Prints a warning, or a line of a log, on standard error, without the credentials of URLs. */
export function warn(line: string): void {
  const lines = redact(line).split("\n");
  process.stderr.write(`lockstep: ${lines.map(escapeControls).join("\n")}\n`);
}
