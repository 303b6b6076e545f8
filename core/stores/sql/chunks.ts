/** The most keys in one statement. */
export const CHUNK = 500;

/** Splits keys into the lists of single statements. */
export function chunksOf<T>(keys: readonly T[], size = CHUNK): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(keys.length / size) }, (_, i) =>
    keys.slice(i * size, (i + 1) * size),
  );
}
