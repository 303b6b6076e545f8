import { createRuntime } from "../../../core/steps/runtime.ts";
import { openMemory } from "../../../core/stores/memory/index.ts";
import { openSqlite } from "../../../core/stores/sqlite/index.ts";
import { routesOf } from "../../../functions/http/app.ts";
import { openApi } from "../../../functions/http/openapi.ts";

/** As much of an OpenAPI document as the page shows. */
interface Document {
  readonly info: { readonly description: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

interface Operation {
  readonly summary: string;
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  readonly responses: Readonly<Record<string, { readonly description: string }>>;
}

interface Parameter {
  readonly in: string;
  readonly name: string;
  readonly required?: boolean;
  readonly description?: string;
}

/** Returns the page of all operations, and the document that it shows. */
export async function httpReference(): Promise<{ readonly page: string; readonly json: string }> {
  await using memory = await openMemory();
  await using shop = await openSqlite(":memory:");
  const runtime = createRuntime({ journal: memory.journal });
  const document = openApi(routesOf({ runtime, inventory: shop.inventory }), []) as Document;
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => sectionOf(method, path, operation)),
  );
  const page = `# HTTP, every operation

Generated from the [OpenAPI 3.1 document](/openapi.json), which every app serves at \`/openapi.json\`. The [guide](/http.md) shows how to serve it.

${document.info.description}

${operations.join("\n\n")}
`;
  return { page, json: JSON.stringify(document, undefined, 2) };
}

function sectionOf(method: string, path: string, operation: Operation): string {
  const { summary, description, parameters = [], responses } = operation;
  const rows = parameters.map((parameter) => {
    const { name, required, description: meaning = "" } = parameter;
    return `| \`${name}\` | ${parameter.in} | ${required ? "required" : ""} | ${cell(meaning)} |`;
  });
  const table = ["| parameter | in | | meaning |", "| --- | --- | --- | --- |", ...rows];
  const answers = Object.entries(responses).map(
    ([status, answer]) => `| ${status} | ${cell(answer.description)} |`,
  );
  return [
    `## ${method.toUpperCase()} ${path}`,
    `${summary}.`,
    ...(description === undefined ? [] : [description]),
    ...(rows.length > 0 ? [table.join("\n")] : []),
    ["| status | meaning |", "| --- | --- |", ...answers].join("\n"),
  ].join("\n\n");
}

function cell(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll("|", "\\|");
}
