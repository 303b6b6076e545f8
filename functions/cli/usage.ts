import type { ArgumentsCamelCase } from "yargs";

/** The words of a command line. */
export interface Words {
  readonly ours: readonly string[];

  /** What stands behind the first "--", untouched: numbers, empty words and options are the command's own. */
  readonly command: readonly string[];
}

export function split(words: readonly string[]): Words {
  const at = words.indexOf("--");
  if (at < 0) return { ours: words, command: [] };
  return { ours: words.slice(0, at), command: words.slice(at + 1) };
}

/** All that may come several times. */
const REPEATABLE = ["_", "strategy"];

/** Throws a TypeError for what yargs lets pass. */
export function checkUsage(args: ArgumentsCamelCase, command: readonly string[]): void {
  if (command.length > 0 && args._[0] !== "lock") {
    throw new TypeError('only "lockstep lock" takes a command after "--"');
  }
  for (const [option, value] of Object.entries(args)) {
    if (!Array.isArray(value) || REPEATABLE.includes(option)) continue;
    throw new TypeError(`--${option} was given more than once`);
  }
}
