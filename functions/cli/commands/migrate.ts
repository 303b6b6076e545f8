import type { CommandModule } from "yargs";
import type { Migration } from "../../../core/database/sql.ts";
import { migrate, migrationStatus } from "../../../core/stores/sql/migrate.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { EXIT } from "../exit-status.ts";
import { lockStoreOption, parseInteger, type StoreArgs, storeOption } from "../options.ts";
import { withStore, withStoreToRead } from "../store.ts";
import { print, warn } from "../terminal/output.ts";

interface MigrateArgs extends StoreArgs {
  readonly print: boolean | undefined;
  readonly status: boolean | undefined;
}

export const migrateCommand: CommandModule<unknown, MigrateArgs> = {
  command: "migrate",
  describe: "Create or update the tables of a database",
  builder: (yargs) =>
    storeOption(yargs)
      .option("print", {
        type: "boolean",
        describe: "print the pending SQL, or the definition of a missing table, and change nothing",
      })
      .option("status", {
        type: "boolean",
        describe: "list the migrations, and change nothing; status 1 if some are pending",
      })
      .conflicts("print", "status")
      .example("$0 migrate --store mysql://shop@db/shop", "safe to repeat and to run concurrently"),
  handler: (args) => (args.print || args.status ? showMigrations(args) : applyMigrations(args)),
};

function showMigrations(args: MigrateArgs): Promise<void> {
  const work = async (store: AnyStore) => {
    const { applied, pending } = await readMigrations(store);
    if (!args.status) {
      for (const { script } of pending) print(script);
      if (store.has("table") && pending.length > 0) warn(store.table.afterwards);
      return;
    }
    for (const name of applied) print(`applied  ${name}`);
    for (const { name } of pending) print(`pending  ${name}`);
    if (pending.length > 0) process.exitCode = EXIT.no;
  };
  return withStoreToRead(args, work, { migrates: false });
}

/** Reads which migrations the store has, and which ones it lacks. */
async function readMigrations(store: AnyStore) {
  if (store.has("table")) {
    const { name, definition } = store.table;
    const missing = { name: `table ${name}`, script: definition };
    return (await store.table.exists())
      ? { applied: [missing.name], pending: [] }
      : { applied: [], pending: [missing] };
  }
  const { applied, pending } = await migrationStatus(store.database);
  const all = await store.database.dialect.migrations();
  const missing = all.filter(({ name }) => pending.includes(name));
  const toScript = ({ name, script }: Migration) => `-- ${name}\n${script.trim()}\n`;
  return { applied, pending: missing.map((one) => ({ name: one.name, script: toScript(one) })) };
}

function applyMigrations(args: StoreArgs): Promise<void> {
  const work = async (store: AnyStore) => {
    const applied = await applyTo(store);
    for (const name of applied) print(`applied ${name}`);
    if (applied.length === 0) print("nothing to do");
  };
  return withStore(args, work, { migrates: false });
}

async function applyTo(store: AnyStore): Promise<readonly string[]> {
  if (!store.has("table")) return migrate(store.database);
  return (await store.table.create()) ? [`table ${store.table.name}`] : [];
}

interface GenerationArgs extends StoreArgs {
  readonly "at-least": string;
}

export const generationCommand: CommandModule<unknown, GenerationArgs> = {
  command: "raise-generation",
  describe: "Make new fences higher than all old ones, after a store lost its tokens",
  builder: (yargs) =>
    lockStoreOption(yargs)
      .option("at-least", {
        type: "string",
        requiresArg: true,
        default: "0",
        describe: "the new generation, if the store lost the old one as well",
      })
      .example("$0 raise-generation --at-least 4", "after a backup of generation 3 was restored"),
  handler: (args) =>
    withStore(args, async ({ locks }) => {
      const atLeast = parseInteger("--at-least", args["at-least"]);
      print(`generation ${await locks.raiseGeneration(atLeast)}`);
    }),
};
