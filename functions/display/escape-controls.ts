/** Escapes control characters: text of others must not steer the terminal. */
export function escapeControls(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => {
    const escaped = JSON.stringify(character).slice(1, -1);
    // JSON escapes neither DEL nor C1.
    return escaped === character ? `\\u00${character.charCodeAt(0).toString(16)}` : escaped;
  });
}

/** Escapes control characters in a text of several lines. */
export function escapeLines(text: string): string {
  return text.split("\n").map(escapeControls).join("\n");
}
