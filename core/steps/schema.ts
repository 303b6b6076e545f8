import { wrongType } from "../lock/checks.ts";
import { invalidValue } from "./errors.ts";

/** A schema of zod, valibot, arktype and others: the interface of standardschema.dev. */
export interface Schema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** A schema that can describe itself: standardschema.dev/json-schema. */
interface DescribedSchema {
  readonly "~standard": {
    readonly jsonSchema?: {
      readonly input: (options: { readonly target: string }) => Readonly<Record<string, unknown>>;
    };
  };
}

type Validated<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly Issue[] };

interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export type InputOf<S extends Schema> = NonNullable<S["~standard"]["types"]>["input"];
export type OutputOf<S extends Schema> = NonNullable<S["~standard"]["types"]>["output"];

/** Some schemas are functions. */
export function isSchema(value: unknown): value is Schema {
  return typeof (value as Partial<Schema> | undefined)?.["~standard"]?.validate === "function";
}

export function checkSchema(what: string, value: unknown): asserts value is Schema {
  if (!isSchema(value)) throw wrongType(what, "a schema of zod, valibot or arktype", value);
}

/** Returns the JSON Schema of a schema's input, or undefined if its library has none for it. */
export function inputSchemaOf(schema: Schema): Readonly<Record<string, unknown>> | undefined {
  try {
    return (schema as DescribedSchema)["~standard"].jsonSchema?.input({ target: "draft-2020-12" });
  } catch {
    return undefined;
  }
}

/** Returns the schema's output. Rejects with INVALID, and names `what` and the path of each issue. */
export async function validate<S extends Schema>(
  what: string,
  schema: S,
  value: unknown,
): Promise<OutputOf<S>> {
  const validated = await schema["~standard"].validate(value);
  if (validated.issues) throw invalidValue(what, validated.issues.map(toText));
  return validated.value;
}

function toText({ message, path = [] }: Issue): string {
  const keys = path.map((part) => String(typeof part === "object" ? part.key : part));
  return keys.length > 0 ? `${keys.join(".")}: ${message}` : message;
}
