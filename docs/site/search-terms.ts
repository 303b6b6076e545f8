/**
 * Returns the terms of a text or of a query. Chinese has no spaces: each pair of characters is a term.
 *
 * VitePress sends this function to the browser as text, so it refers to nothing outside of itself.
 */
export function searchTerms(text: string): string[] {
  const words = text.match(/\p{Script=Han}+|[^\p{Script=Han}\p{Z}\p{P}\p{C}\p{S}]+/gu) ?? [];
  return words.flatMap((word) => {
    if (!/\p{Script=Han}/u.test(word) || word.length < 3) return [word];
    return Array.from({ length: word.length - 1 }, (_, i) => word.slice(i, i + 2));
  });
}
