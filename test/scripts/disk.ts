import { sql } from "../../core/database/sql.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";

/** disk FILE: writes to the file until a write fails, and prints the codes of further writes and of a read. */
const [file = ""] = process.argv.slice(2);
const database = sqliteDatabase(file);
const insert = sql`INSERT INTO t VALUES (${"x".repeat(10_000)})`;
const codeOf = (work: Promise<unknown>) => work.then(() => "done").catch(({ code }) => code);
await database.batch([sql`CREATE TABLE t (a TEXT)`]);
while ((await codeOf(database.batch([insert]))) === "done");
const alone = await codeOf(database.batch([insert]));
const several = await codeOf(database.batch([insert, insert]));
const transaction = await codeOf(database.transaction((tx) => tx.commit([insert])));
const read = await codeOf(database.read(sql`SELECT COUNT(*) FROM t`));
process.stdout.write(`${JSON.stringify({ alone, several, transaction, read })}\n`);
