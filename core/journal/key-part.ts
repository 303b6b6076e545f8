/** Escapes a part of a key whose parts are joined with "/": keys with other parts differ. */
export function keyPart(text: string): string {
  return text.replace(/[%/]/g, (char) => (char === "/" ? "%2F" : "%25"));
}
