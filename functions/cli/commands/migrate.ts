import type { CommandModule } from "yargs";
import { migrate, migrationStatus } from "../../../core/stores/sql/migrate.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { EXIT } from "../exit-status.ts";
import { type StoreArgs, storeOption } from "../options.ts";
import { withStore } from "../store.ts";
import { print } from "../terminal/output.ts";

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
        describe: "print the pending SQL, and change nothing",
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
  const work = async ({ database }: AnyStore) => {
    const { applied, pending } = await migrationStatus(database);
    if (args.status) {
      for (const name of applied) print(`applied  ${name}`);
      for (const name of pending) print(`pending  ${name}`);
      if (pending.length > 0) process.exitCode = EXIT.no;
      return;
    }
    for (const { name, script } of await database.dialect.migrations()) {
      if (pending.includes(name)) print(`-- ${name}\n${script.trim()}\n`);
    }
  };
  return withStore(args, work, { create: false });
}

function applyMigrations(args: StoreArgs): Promise<void> {
  return withStore(args, async ({ database }) => {
    const applied = await migrate(database);
    for (const name of applied) print(`applied ${name}`);
    if (applied.length === 0) print("nothing to do");
  });
}

interface GenerationArgs extends StoreArgs {
  readonly "at-least": number;
}

export const generationCommand: CommandModule<unknown, GenerationArgs> = {
  command: "raise-generation",
  describe: "Make new fences higher than all old ones, after a store lost its tokens",
  builder: (yargs) =>
    storeOption(yargs)
      .option("at-least", {
        type: "number",
        default: 0,
        describe: "the new generation, if the store lost the old one as well",
      })
      .example("$0 raise-generation --at-least 4", "after a backup of generation 3 was restored"),
  handler: (args) =>
    withStore(args, async ({ locks }) =>
      print(`generation ${await locks.raiseGeneration(args["at-least"])}`),
    ),
};
