/** The lines of a body. A line may come in pieces, and so may a character. */
export async function* linesOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const text = new TextDecoder();
  let begun = "";
  for await (const piece of body) {
    const lines = (begun + text.decode(piece, { stream: true })).split("\n");
    begun = lines.pop() ?? "";
    for (const line of lines) if (line.trim() !== "") yield line;
  }
  if (begun.trim() !== "") yield begun;
}
