/** Letters in the cells of a table, and what each one stands for. */
export class Legend {
  readonly #reasons: string[] = [];

  letterOf(reason: string): string {
    if (!this.#reasons.includes(reason)) this.#reasons.push(reason);
    return String.fromCharCode("a".charCodeAt(0) + this.#reasons.indexOf(reason));
  }

  /** The lines below the table. */
  get lines(): readonly string[] {
    return this.#reasons.map((reason) => `- ${this.letterOf(reason)}: ${reason}`);
  }
}

/** A table of Markdown. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}
