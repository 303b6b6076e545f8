#!/usr/bin/env node
import { createRequire } from "node:module";
import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { devCommand } from "./dev.ts";
import { describe, EXIT, statusOf } from "./exit.ts";
import { inspectCommand, listCommand } from "./inspect.ts";
import { inventoryCommand } from "./inventory.ts";
import { lockCommand } from "./lock.ts";
import { generationCommand, migrateCommand } from "./migrate.ts";
import { warn } from "./options.ts";
import { ordersCommand } from "./orders.ts";
import { oversellCommand } from "./oversell.ts";
import { runCommand } from "./run.ts";
import { runsCommand } from "./runs.ts";
import { serversCommand } from "./servers.ts";
import { checkUsage, split } from "./usage.ts";
import { workerCommand } from "./worker.ts";

const { version } = createRequire(import.meta.url)("lockstep/package.json");

const { ours, command } = split(hideBin(process.argv));

try {
  await yargs(ours)
    .scriptName("lockstep")
    .version(version)
    .usage("$0 <command>\n\nLocks with fences, steps that resume, and stock that never oversells.")
    .command(lockCommand(command))
    .command(inspectCommand)
    .command(listCommand)
    .command(migrateCommand)
    .command(generationCommand)
    .command(inventoryCommand)
    .command(devCommand)
    .command(workerCommand)
    .command(runCommand)
    .command(runsCommand)
    .command(ordersCommand)
    .command(oversellCommand)
    .command(serversCommand)
    .demandCommand(1, "which command?")
    .strict()
    .check((args) => {
      checkUsage(args, command);
      return true;
    })
    .example("$0 lock nightly-report -- node report.js", "run one at a time, wherever started")
    .fail((message, error) => {
      throw error ?? new TypeError(`${message} (lockstep --help shows how)`);
    })
    .parseAsync();
} catch (error) {
  warn(describe(error));
  process.exitCode = statusOf(error) || EXIT.software;
}
