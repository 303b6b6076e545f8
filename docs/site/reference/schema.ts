import type { Migration } from "../../../core/database/sql.ts";
import { migrations as mysql } from "../../../core/stores/mysql/migrations.ts";
import { migrations as postgres } from "../../../core/stores/postgres/migrations.ts";
import { migrations as sqlite } from "../../../core/stores/sqlite/migrations.ts";

const DATABASES = {
  postgres: ["PostgreSQL", postgres],
  mysql: ["MySQL and MariaDB", mysql],
  sqlite: ["SQLite", sqlite],
} as const;

/** Returns a page of SQL for each database, by its path in the site. */
export function schemaPages(): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(DATABASES).map(([name, [title, migrations]]) => [
      `reference/schema-${name}.md`,
      `# Tables in ${title}

\`lockstep migrate\` executes these migrations in order, each once. \`lockstep migrate --print\` prints the ones that your database lacks. The
number of the last one is the schema's version. A released migration never changes.

${migrations.map(sectionOf).join("\n\n")}
`,
    ]),
  );
}

function sectionOf({ name, script }: Migration): string {
  const sql = script.trim();
  return `## ${name}\n\n${sql === "" ? "Nothing to do in this database." : `\`\`\`sql\n${sql}\n\`\`\``}`;
}
