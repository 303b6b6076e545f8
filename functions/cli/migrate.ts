import type { CommandModule } from "yargs";
import { migrate } from "../../infra/migrate.ts";
import { print, type StoreArgs, using, withStore } from "./options.ts";

export const migrateCommand: CommandModule<unknown, StoreArgs> = {
  command: "migrate",
  describe: "Make or update the tables of a database",
  builder: (yargs) =>
    withStore(yargs).example(
      "$0 migrate --store mysql://shop@db/shop",
      "safe to run twice, or at once",
    ),
  handler: (args) =>
    using(args, async ({ database }) => {
      if (!database) throw new TypeError("this store has no tables");
      const applied = await migrate(database);
      for (const name of applied) print(`applied ${name}`);
      if (applied.length === 0) print("nothing to do");
    }),
};

interface GenerationArgs extends StoreArgs {
  readonly "at-least": number;
}

export const generationCommand: CommandModule<unknown, GenerationArgs> = {
  command: "raise-generation",
  describe: "After a store lost its tokens: put every new fence above all old ones",
  builder: (yargs) =>
    withStore(yargs)
      .option("at-least", {
        type: "number",
        default: 0,
        describe: "the new generation, where the old one was lost too",
      })
      .example("$0 raise-generation --at-least 4", "after a backup of generation 3 was restored"),
  handler: (args) =>
    using(args, async ({ locks }) =>
      print(`generation ${await locks.raiseGeneration(args["at-least"])}`),
    ),
};
