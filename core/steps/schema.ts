import { InvalidValueError } from "./errors.ts";

/** What zod, valibot, arktype and others have in common: standardschema.dev. */
export interface Schema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Checked<Output> | Promise<Checked<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type Checked<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly Issue[] };

interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export type InputOf<S extends Schema> = NonNullable<S["~standard"]["types"]>["input"];
export type OutputOf<S extends Schema> = NonNullable<S["~standard"]["types"]>["output"];

/** The value as the schema makes it. Rejects with an InvalidValueError that names `what` and where it is wrong. */
export async function validate<S extends Schema>(
  what: string,
  schema: S,
  value: unknown,
): Promise<OutputOf<S>> {
  const checked = await schema["~standard"].validate(value);
  if (checked.issues) throw new InvalidValueError(what, checked.issues.map(toText));
  return checked.value;
}

function toText({ message, path = [] }: Issue): string {
  const keys = path.map((part) => String(typeof part === "object" ? part.key : part));
  return keys.length > 0 ? `${keys.join(".")}: ${message}` : message;
}
