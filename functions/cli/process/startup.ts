/** The first import of the command line: every other module may need features that an older Node lacks. */
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);

// `engines` in package.json says the same.
if (major < 22 || (major === 22 && minor < 18)) {
  const found = `${process.execPath} is ${process.versions.node}`;
  process.stderr.write(
    `lockstep: needs Node 22.18 or later; ${found}. Install a newer one: https://nodejs.org\n`,
  );
  process.exit(69);
}

// On SIGUSR1, Node opens a debugger to every user of the machine, in a process that has the store's credentials.
// Adding and removing a handler restores the signal's default action, which ends the process.
const handler = () => {};
process.on("SIGUSR1", handler).off("SIGUSR1", handler);
