import { basename, resolve } from "node:path";
import type { CommandModule } from "yargs";
import {
  PROJECT_KINDS,
  PROJECT_STORES,
  type ProjectKind,
  type ProjectStore,
  writeProject,
} from "../../../infra/init/write-project.ts";
import { note } from "../terminal/output.ts";

interface InitArgs {
  readonly dir: string;
  readonly kind: ProjectKind;
  readonly store: ProjectStore;
  readonly name: string | undefined;
}

export const initCommand = (version: string): CommandModule<unknown, InitArgs> => ({
  command: "init [dir]",
  describe: "Write a project of your own for AWS Lambda",
  builder: (yargs) =>
    yargs
      .positional("dir", { type: "string", default: ".", describe: "the folder of the project" })
      .option("kind", {
        requiresArg: true,
        choices: PROJECT_KINDS,
        demandOption: true,
        describe: "the tool that deploys the project",
      })
      .option("store", {
        requiresArg: true,
        choices: PROJECT_STORES,
        default: "mysql" as const,
        describe: "the store of stock, runs and locks, or the store + that of locks",
      })
      .option("name", {
        type: "string",
        requiresArg: true,
        describe: "the name of the project",
        defaultDescription: "that of the folder",
      })
      .example("$0 init shop --kind cdk", "locks in the database")
      .example("$0 init shop --kind sam --store mysql+etcd", "locks in etcd")
      .example("$0 init shop --kind terraform --store postgres", "all in PostgreSQL")
      .example("$0 init shop --kind osls --store dynamodb", "all in one table, without a VPC")
      .epilog("Never overwrites a file. Exit status: 0; 64 if one of the files exists."),
  async handler({ dir, kind, store, name = basename(resolve(dir)) }) {
    const files = await writeProject({ folder: dir, name, kind, store, version });
    for (const file of files) note(`wrote ${file}`);
    const folder = /^[\w./-]+$/.test(dir) ? dir : `'${dir.replaceAll("'", `'\\''`)}'`;
    note(
      `next: cd ${folder} && cp PATH/lockstep-${version}.tgz . && npm install ./lockstep-${version}.tgz && npm run bundle`,
    );
  },
});
