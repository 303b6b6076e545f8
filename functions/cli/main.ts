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

let isOver = false;
process.once("exit", (code) => {
  // Node's status when nothing is left that the process could wait for.
  const isStuck = code === 13;
  // Code of the user, as that of a workflow, has called process.exit(): its runs have no outcome yet.
  const isCutShort = code === 0 && !isOver;
  if (!isStuck && !isCutShort) return;
  const what = isStuck ? "waits for something that never comes" : "was ended by process.exit()";
  process.stderr.write(`lockstep: the command ${what}\n`);
  process.exitCode = EXIT.software;
});

await executeCommand(process.argv.slice(2));
isOver = true;

// The command is over: connections to a server that hangs must not keep the process running.
setTimeout(() => process.exit(), timeLeftToExit()).unref();
