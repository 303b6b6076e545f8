#!/usr/bin/env node
import "./process/startup.ts";

// An old Node, which `startup.ts` refuses, cannot even link the other modules.
const { executeCommand } = await import("./execute-command.ts");
const { EXIT } = await import("./exit-status.ts");
const { timeLeftToExit } = await import("./store.ts");

for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    // A reader that closes the pipe early, as in `lockstep list | head -1`, is no error.
    if (error.code === "EPIPE") return;
    if (stream === process.stdout) {
      process.stderr.write(`lockstep: cannot write the output: ${error.message}\n`);
    }
    process.once("exit", () => {
      process.exitCode = EXIT.cannotWrite;
    });
    // A command that goes on until it is interrupted releases what it holds.
    process.emit("SIGTERM", "SIGTERM");
  });
}

process.once("exit", (code) => {
  // Node's status when nothing is left that the process could wait for.
  if (code !== 13) return;
  process.stderr.write("lockstep: the command waits for something that never comes\n");
  process.exitCode = EXIT.software;
});

await executeCommand(process.argv.slice(2));

// The command is over: connections to a server that hangs must not keep the process running.
setTimeout(() => process.exit(), timeLeftToExit()).unref();
