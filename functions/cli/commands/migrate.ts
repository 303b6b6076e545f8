import type { CommandModule } from "yargs";
import { migrate } from "../../../core/stores/sql/migrate.ts";
import { type StoreArgs, storeOption } from "../options.ts";
import { withStore } from "../store.ts";
import { print } from "../terminal/output.ts";

export const migrateCommand: CommandModule<unknown, StoreArgs> = {
  command: "migrate",
  describe: "Create or update the tables of a database",
  builder: (yargs) =>
    storeOption(yargs).example(
      "$0 migrate --store mysql://shop@db/shop",
      "safe to repeat and to run concurrently",
    ),
  handler: (args) =>
    withStore(args, async ({ database }) => {
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
