/** Removes user and password from the URLs of a text, and the values of options that are named as secrets are. */
export function redact(text: string): string {
  const shown = text.replace(SECRET, "$1…");
  return shown.split("\n").map(redactLine).join("\n");
}

const SECRET = /([?&](?:[\w-]*password|[\w-]*token|[\w-]*secret)=)[^&#\s]*/gi;

/**
 * User and password end at the last "@" of the URL's word. If a password contains a space, the first word names no host:
 * then the text up to the line's last "@" is removed. A regular expression over the whole line would take seconds on a long
 * line of slashes.
 */
function redactLine(line: string): string {
  const last = line.lastIndexOf("@");
  let shown = "";
  let from = 0;
  for (;;) {
    const start = line.indexOf("//", from) + 2;
    if (start < 2) return shown + line.slice(from);
    shown += line.slice(from, start);
    from = wordEnd(line, start);
    const host = start + line.slice(start, from).lastIndexOf("@") + 1;
    if (line.startsWith("file:", start - 7)) shown += line.slice(start, from);
    else if (last < from || namesHosts(line.slice(host, from))) shown += line.slice(host, from);
    else from = last + 1;
  }
}

function wordEnd(line: string, start: number): number {
  const space = /\s/g;
  space.lastIndex = start;
  return space.exec(line)?.index ?? line.length;
}

const HOST = /^(\[[\da-f:.]+\]|[\w.-]*)(:\d+)?$/i;

/** Whether the rest of a URL's word is empty or a list of hosts, with or without punctuation behind it. */
function namesHosts(word: string): boolean {
  const [authority = ""] = word.split(/[/?#]/, 1);
  const hosts = authority.replace(/[:;,.)"'>]{1,3}$/, "");
  return hosts.split(",").every((host) => HOST.test(host));
}
