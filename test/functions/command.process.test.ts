import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TERMINATING } from "../../functions/cli/process/signals.ts";
import { MAIN, programOnTerminal, shellWord, startCli } from "../support/cli.ts";
import { processState } from "../support/process-state.ts";
import { runCli, runProgram } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

const node = process.execPath;
let store: readonly string[] = [];
let folder = "";
let remove: () => Promise<void>;

beforeAll(async () => {
  const temporary = await temporaryFile();
  remove = temporary.remove;
  folder = dirname(temporary.file);
  store = ["--store", `sqlite:${temporary.file}`];
});

afterAll(() => remove());

function stateOf(pid: string | number): string | undefined {
  expect(String(pid)).toMatch(/^\d+$/);
  return processState(Number(pid));
}

const isRunning = (pid: string | number) => ![undefined, "Z"].includes(stateOf(pid));
const isStopped = (pid: string | number) => stateOf(pid) === "T";

describe.concurrent("lockstep lock -- command", () => {
  const lock = (name: string, ...args: readonly string[]) =>
    runCli("lock", name, ...store, "--", ...args);
  const shell = (name: string, script: string) => lock(name, "sh", "-c", script);

  test("ends the processes that the command leaves behind, and exits with its status", async () => {
    using run = shell("left", "sleep 61 & echo $!; exit 3");
    const pid = await run.line();
    expect(await run.ended).toBe(3);
    expect(isRunning(pid)).toBe(false);
  });

  test("without a command releases the lock when it cannot print its line", async () => {
    const args = [MAIN, "lock", "full", ...store, "--ttl", "10m"].map(shellWord).join(" ");
    using run = runProgram("sh", ["-c", `${shellWord(node)} ${args} > /dev/full`]);
    expect(await run.ended).toBe(74);
    using next = lock("full", "true");
    expect(await next.ended).toBe(0);
  });

  test("releases the lock only after all descendants of the command have ended", async () => {
    const file = join(folder, "stamps");
    const stubborn = `trap "" TERM; while :; do date +%s%N >>${file}; sleep 0.01; done`;
    using first = shell(
      "order",
      `sh -c '${stubborn}' & until [ -s ${file} ]; do sleep 0.05; done; echo started`,
    );
    expect(await first.line()).toBe("started");
    using second = shell("order", "date +%s%N");
    const acquiredAt = await second.line();
    const lastStamp = (await readFile(file, "utf8")).trim().split("\n").at(-1) ?? "";
    expect([lastStamp, acquiredAt].toSorted()).toEqual([lastStamp, acquiredAt]);
    expect(lastStamp).toMatch(/^\d{19}$/);
    expect(await first.ended).toBe(0);
  });

  test("kills the command and its children when lockstep is killed", async () => {
    using run = shell("killed", "echo $$; sleep 61 & echo $!; wait");
    const pids = [await run.line(), await run.line()];
    expect(pids.map(isRunning)).toEqual([true, true]);
    run.child.kill("SIGKILL");
    await until(() => !pids.some(isRunning));
  });

  test("passes on every variable, even with a name that shells drop", async () => {
    const print = ["-p", "process.env['spring.url'] + process.env.PLAIN"];
    const args = ["lock", "variables", ...store, "--", node, ...print];
    const env = { "spring.url": "a b", PLAIN: "c" };
    expect(await startCli(args, { env }).finished).toMatchObject({ status: 0, stdout: "a bc\n" });
  });

  test("leaves no process behind", async () => {
    using run = shell("watched", "ps -o pid= --ppid $PPID");
    const pids = [await run.line(), await run.line(), await run.next()].filter((pid) => pid);
    expect(await run.ended).toBe(0);
    await until(() => !pids.some((pid = "") => isRunning(pid.trim())));
  });

  test("forwards every signal that can be handled", async () => {
    const forwarded = [...TERMINATING, "SIGWINCH", "SIGCONT"] as const;
    const script = `
      for (const signal of ${JSON.stringify(forwarded)}) process.on(signal, console.log);
      setInterval(() => {}, 1000);
      console.log("ready");`;
    using run = lock("forwarded", node, "-e", script);
    expect(await run.line()).toBe("ready");
    for (const signal of forwarded) {
      run.child.kill(signal);
      expect(await run.line()).toBe(`${signal} ${constants.signals[signal]}`);
    }
    run.child.kill("SIGKILL");
  });

  test.each(["SIGQUIT", "SIGUSR1", "SIGUSR2"] as const)(
    "exits with a shell's status if %s has ended the command",
    async (signal) => {
      using run = shell(`ended by ${signal}`, "echo ready; exec sleep 61");
      expect(await run.line()).toBe("ready");
      run.child.kill(signal);
      expect(await run.ended).toBe(128 + constants.signals[signal]);
    },
  );

  /** In a process group that a shell can continue: the kernel stops no other on SIGTSTP. */
  const underShell = (...args: readonly string[]) =>
    runProgram("bash", ["-c", 'set -m; "$@" & exec sleep 61', "bash", node, MAIN, "lock", ...args]);

  test("stops with the command, and continues with it", async () => {
    const script = "echo $PPID $$; sleep 61 & echo $!; wait";
    using run = underShell("stopped", ...store, "--", "sh", "-c", script);
    const [lockstep = "", command = ""] = (await run.line()).split(" ");
    const pids = [lockstep, command, await run.line()];
    process.kill(Number(lockstep), "SIGTSTP");
    await until(() => pids.every(isStopped));
    process.kill(Number(lockstep), "SIGCONT");
    await until(() => !pids.some(isStopped));
    process.kill(Number(lockstep), "SIGKILL");
    await until(() => !pids.some(isRunning));
  });

  test("says why the lock was lost when the file of the store was deleted", async () => {
    const temporary = await temporaryFile();
    const url = `sqlite:${temporary.file}`;
    const command = ["sh", "-c", "echo started; exec sleep 60"];
    const { child, finished } = startCli(
      ["lock", "deleted", "--store", url, "--ttl", "2s", "--", ...command],
      { cwd: folder },
    );
    await once(child.stdout ?? expect.fail(), "data");
    await temporary.remove();
    const { status, stderr } = await finished;
    expect(stderr).toMatch(/not renewed in time \(.*the file was deleted or replaced/);
    expect(status).toBe(76);
  });

  test("does not stop if no shell could continue it", async () => {
    const script = "process.on('SIGTERM', () => process.exit(42)); console.log(process.ppid)";
    const command = [node, "-e", `${script}; setInterval(() => {}, 1000)`];
    using run = runProgram("setsid", [node, MAIN, "lock", "orphan", ...store, "--", ...command]);
    const lockstep = Number(await run.line());
    process.kill(lockstep, "SIGTSTP");
    await pause(300);
    process.kill(lockstep, "SIGTERM");
    await until(() => !isRunning(lockstep));
  });

  test("does not continue a command whose lock was lost while it was stopped", async () => {
    const file = join(folder, "ticks");
    // Not a shell that starts other commands: with vfork, it cannot stop before its child has. Not Node: while one of its
    // threads handles the TERM that ends it, another one executes the program.
    const tick = `$| = 1; print getppid(), " $$\\n";
      while (1) { open F, ">>", $ARGV[0]; print F "."; close F; select undef, undef, undef, 0.01 }`;
    const ticking = ["perl", "-e", tick, file];
    using run = underShell("lapsed", "--ttl", "10s", ...store, "--", ...ticking);
    const [lockstep = "", command = ""] = (await run.line()).split(" ");
    await until(async () => (await readFile(file, "utf8").catch(() => "")) !== "");
    process.kill(Number(lockstep), "SIGTSTP");
    await until(() => isStopped(command) && isStopped(lockstep));
    const before = await readFile(file, "utf8");
    await pause(11_000);
    process.kill(Number(lockstep), "SIGCONT");
    await until(() => !isRunning(lockstep));
    expect(await readFile(file, "utf8")).toBe(before);
  });

  test("on a terminal, the command reads, Ctrl-Z stops both, and fg continues both", async () => {
    const script = `echo pids $PPID $$ .; while read -r line; do echo "got $line"; done`;
    const words = [node, MAIN, "lock", "job", ...store, "--", "sh", "-c", script];
    const terminal = programOnTerminal("bash", "--norc", "-i");
    terminal.type(`${words.map(shellWord).join(" ")}\n`);
    const shows = (text: RegExp) => until(() => text.exec(terminal.shown()) ?? false, 60_000);
    const [, lockstep = "", command = ""] = await shows(/pids (\d+) (\d+) \./);
    terminal.type("one\n");
    await shows(/got one/);
    terminal.type("\x1a");
    await until(() => isStopped(lockstep) && isStopped(command));
    await shows(/Stopped/);
    terminal.type("fg\n");
    await until(() => !isStopped(lockstep) && !isStopped(command));
    terminal.type("two\n");
    await shows(/got two/);
    terminal.type("\x03");
    await until(() => !isRunning(lockstep) && !isRunning(command));
    terminal.type("echo status $?; exit\n");
    await shows(/status 130/);
    await terminal.status;
  });
});

describe.concurrent("SIGUSR1", () => {
  test("opens no debugger, and the lock is released", async () => {
    const holder = startCli(["lock", "debugged", ...store]);
    await new Promise((resolve) => holder.child.stdout?.once("data", resolve));
    holder.child.kill("SIGUSR1");
    expect(await holder.finished).toMatchObject({ status: 0, stderr: "" });
    const next = startCli(["lock", "debugged", "--wait", "0", ...store, "--", node, "-e", ""]);
    expect((await next.finished).status).toBe(0);
  });

  test("ends a command that does not handle it, without a debugger", async () => {
    const silent = createServer();
    const connected = new Promise((resolve) => silent.once("connection", resolve));
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    const { port } = silent.address() as { port: number };
    const run = startCli(["list", "--store", `mysql://root@127.0.0.1:${port}/shop`]);
    await connected;
    run.child.kill("SIGUSR1");
    expect(await run.finished).toMatchObject({ status: "SIGUSR1", stderr: "" });
    silent.close();
  });
});
