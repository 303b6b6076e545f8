import { basename } from "node:path";
import { redact } from "./redact.ts";

/**
 * Returns the program of a command line and its first arguments, up to the first option of each command: the words behind
 * an option may be secrets. User, password and query of URLs are removed, and the values of NAME=VALUE.
 */
export function shownCommand([, script = "node", ...words]: readonly string[]): string {
  const shown: string[] = [];
  let isShown = true;
  for (const word of words) {
    isShown = word === "--" || (isShown && !word.startsWith("-"));
    if (isShown)
      shown.push(
        redact(word)
          .replace(QUERY, "$1?…")
          .replace(/^(\w+)=.*/s, "$1=…"),
      );
    else if (shown.at(-1) !== "…") shown.push("…");
  }
  const program = /functions[/\\]cli[/\\]main\.[jt]s$/.test(script) ? "lockstep" : basename(script);
  return [program, ...shown].join(" ").slice(0, LONGEST_COMMAND).toWellFormed();
}

/** The query of a URL. */
const QUERY = /^(\w[\w+.-]*:[^?\s]*)\?.+/s;

const LONGEST_COMMAND = 200;
