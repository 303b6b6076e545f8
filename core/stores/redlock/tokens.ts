import type { Token } from "../../lock/polling.ts";

/** For each name the highest token, and for all of them the highest generation. */
export function highest(all: readonly (readonly Token[])[]): readonly Token[] {
  const generation = Math.max(...all.flat().map((token) => token.generation));
  const [first = [], ...rest] = all;
  return first.map(({ token }, i) => {
    const others = rest.map((tokens) => tokens[i]?.token ?? 0n);
    return { generation, token: others.reduce((a, b) => (a > b ? a : b), token) };
  });
}

export function isSame(a: readonly Token[], b: readonly Token[]): boolean {
  return a.every(
    ({ generation, token }, i) => generation === b[i]?.generation && token === b[i]?.token,
  );
}
