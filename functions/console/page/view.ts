import type { TemplateResult } from "lit-html";
import type { ConsoleInfo } from "../shapes.ts";

/** The view that an address names, such as "#/runs/order-7?part=2". */
export interface Route {
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

/** A part of the page, which is loaded and drawn again and again. */
export interface View<T> {
  readonly title: string;
  load(): Promise<T>;
  draw(answer: T, info: ConsoleInfo): TemplateResult;
}

export type AnyView = View<unknown>;

export function view<T>(of: View<T>): AnyView {
  return of as AnyView;
}

/** Goes to the same view with other words in the query of its address. Empty words are left out. */
export function refine({ path, query }: Route, words: Readonly<Record<string, string>>): void {
  const next = new URLSearchParams(query);
  for (const [name, word] of Object.entries(words)) {
    if (word === "") next.delete(name);
    else next.set(name, word);
  }
  const text = next.size > 0 ? `?${next}` : "";
  location.replace(`#/${path.map(encodeURIComponent).join("/")}${text}`);
}

/** Decodes a part of an address. A part that is no valid escape is taken as it is. */
export function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
