#!/usr/bin/env node
// Must be the first import:
import "./process/startup.ts";
import { executeCommand } from "./execute-command.ts";
import { timeLeftToExit } from "./store.ts";

// A reader that closes the pipe early, as in `lockstep list | head -1`, is no error.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

await executeCommand(process.argv.slice(2));

// The command is over: connections to a server that hangs must not keep the process running.
setTimeout(() => process.exit(), timeLeftToExit()).unref();
