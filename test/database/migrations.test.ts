import { expect, test } from "vitest";
import { migrations as mysql } from "../../core/stores/mysql/migrations.ts";
import { migrations as postgres } from "../../core/stores/postgres/migrations.ts";
import { migrations as sqlite } from "../../core/stores/sqlite/migrations.ts";

test.each(Object.entries({ mysql, postgres, sqlite }))(
  "migrations of %s only add, so that older processes go on with the new tables",
  (_, migrations) => {
    // Comments, and the bodies of functions, change no table.
    const withoutBodies = (script: string) => script.replaceAll(/^ *--.*$|\$\$[^$]*\$\$/gm, "");
    const sql = migrations.map(({ script }) => withoutBodies(script)).join("\n");
    expect(sql).not.toMatch(/\b(?:DROP|RENAME|MODIFY|CHANGE|ALTER COLUMN|DELETE|TRUNCATE)\b/i);
    const added = [...sql.matchAll(/ADD COLUMN (?:IF NOT EXISTS )?(\w+[^,;']*)/g)];
    expect(added.length).toBeGreaterThan(2);
    for (const [, column = ""] of added) {
      expect(/NOT NULL/.test(column) ? column : `${column} DEFAULT`).toContain("DEFAULT");
    }
  },
);
