#!/usr/bin/env node
import "./process/startup.ts";

// An old Node, which `startup.ts` refuses, cannot even link the other modules.
const { executeCommand } = await import("./execute-command.ts");
const { timeLeftToExit } = await import("./store.ts");

// A reader that closes the pipe early, as in `lockstep list | head -1`, is no error.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

await executeCommand(process.argv.slice(2));

// The command is over: connections to a server that hangs must not keep the process running.
setTimeout(() => process.exit(), timeLeftToExit()).unref();
