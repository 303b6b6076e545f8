import { readFileSync } from "node:fs";

/** A defect that is planted in the product: one text of a source file is replaced. */
export interface Mutant {
  readonly name: string;

  /** From the root of the project. */
  readonly file: string;

  /** Stands in the file exactly once. */
  readonly find: string;
  readonly replace: string;
}

/** A mutant, and the tests that should catch it. */
export interface TestedMutant extends Mutant {
  /** The smallest set of test files. */
  readonly tests: readonly string[];

  /** A pattern for the names of the tests, where a file takes long. */
  readonly only?: string;

  /** Why no test can catch it. */
  readonly survives?: string;
}

type Defect = Omit<TestedMutant, "file" | "tests"> & Partial<Pick<TestedMutant, "tests">>;

/** Returns the mutants of one source file. `tests` are for those that name no others. */
export function mutantsOf(
  file: string,
  tests: readonly string[],
  defects: readonly Defect[],
): readonly TestedMutant[] {
  return defects.map((defect) => ({ tests, ...defect, file }));
}

/** The folder of the project. */
export const ROOT = new URL("../../", import.meta.url);

/** Returns where the mutant's file is. */
export function fileOf({ file }: Mutant): URL {
  return new URL(file, ROOT);
}

/** Returns the source of the mutant's file with the defect. Throws unless the text is there exactly once. */
export function mutated(mutant: Mutant): string {
  const { name, file, find, replace } = mutant;
  const source = readFileSync(fileOf(mutant), "utf8");
  const { length } = source.split(find);
  if (length !== 2) throw new Error(`mutant "${name}": its text is ${length - 1} times in ${file}`);
  return source.replace(find, () => replace);
}
