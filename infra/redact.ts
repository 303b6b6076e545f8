/** A text as it may be shown: of each line with URLs, whatever could be user and password is left out. */
export function redact(text: string): string {
  return text.split("\n").map(redactLine).join("\n");
}

/** From the first URL to the last "@". No pattern: on a long line of slashes, one takes seconds. */
function redactLine(line: string): string {
  const start = line.indexOf("//") + 2;
  const end = line.lastIndexOf("@");
  return start < 2 || end < start ? line : line.slice(0, start) + line.slice(end + 1);
}
