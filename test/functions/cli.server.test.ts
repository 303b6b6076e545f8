import { mkdir, readdir, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { EXIT } from "../../functions/cli/exit-status.ts";
import { cli, onTerminal, startCli, untilPrinted } from "../support/cli.ts";
import { cliInProcess } from "../support/cli-in-process.ts";
import { cells } from "../support/matrix.ts";
import { processState } from "../support/process-state.ts";
import { anyPrefix, redisServer } from "../support/redis-under-test.ts";
import { temporaryDatabase, temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

const node = process.execPath;

/** A zombie, which its parent has not waited for yet, does not run. */
function isRunning(pid: string): boolean {
  expect(pid).toMatch(/^\d+$/);
  return ![undefined, "Z"].includes(processState(Number(pid)));
}

interface Opened {
  readonly url: string;
  readonly remove: () => Promise<void>;
}

const stores = new Map<string, Promise<Opened>>();

/** Opens the store of this name before the tests of a suite, once for all suites. Returns a function for its URL. */
function useStore(name: string): () => string {
  let url = "";
  beforeAll(async () => {
    const opening = stores.get(name) ?? opened(name);
    stores.set(name, opening);
    ({ url } = await opening);
  });
  return () => url;
}

async function opened(name: string): Promise<Opened> {
  if (name === "redis") {
    const url = `${redisServer("redis").url}?prefix=${anyPrefix()}`;
    return { url, remove: async () => {} };
  }
  const server = inject("sqlServers").find((each) => each.name === name);
  if (!server) {
    const { file, remove } = await temporaryFile();
    return { url: `sqlite:${file}`, remove };
  }
  const { url, drop } = await temporaryDatabase(server);
  const migrated = await cliInProcess("migrate", "--store", url);
  expect(migrated).toMatchObject({ status: 0, stdout: expect.stringContaining("applied 0001") });
  expect((await cliInProcess("migrate", "--store", url)).stdout).toBe("nothing to do\n");
  return { url, remove: drop };
}

afterAll(async () => {
  for (const store of stores.values()) await (await store).remove();
});

const names = ["sqlite", ...inject("sqlServers").map(({ name }) => name)];

describe.concurrent.each(cells(names))("lockstep lock on %s", (storeName) => {
  const store = useStore(storeName);
  const lock = (...args: readonly string[]) => startCli(["lock", "--store", store(), ...args]);

  /** Tries once, and again if a busy machine has not answered in the time that a single try has. */
  const lockAtOnce = (name: string) =>
    until(async () => {
      const tried = await lock(name, "--wait", "0", "--", node, "-e", "").finished;
      return tried.status !== EXIT.unavailable && tried;
    });

  test("runs the command with the lock's name and fence, and returns its exit status", async () => {
    const script =
      "console.log(process.env.LOCKSTEP_NAME, process.env.LOCKSTEP_FENCE); process.exit(3)";
    const first = await lock("job", "--", node, "-e", script).finished;
    expect(first.status).toBe(3);
    expect(first.stdout).toMatch(/^job \d{10}\.\d{20}\n$/);
    expect(first.stderr).toBe("");
    const second = await lock("job", "--", node, "-e", script).finished;
    expect(second.stdout > first.stdout).toBe(true);
  });

  test("makes a second process wait until the first one has ended", async () => {
    const stamp = "console.log(Date.now()); setTimeout(() => console.log(Date.now()), 700)";
    const runs = [1, 2].map(() => lock("turns", "--", node, "-e", stamp).finished);
    const spans = (await Promise.all(runs))
      .map(({ stdout }) => stdout.trim().split("\n").map(Number))
      .sort(([a = 0], [b = 0]) => a - b);
    expect(spans[1]?.[0]).toBeGreaterThanOrEqual(spans[0]?.[1] ?? Number.POSITIVE_INFINITY);
  });

  test("leaves a lock that is free within its ttl plus a second after a kill, and the next fence is larger", async () => {
    const script = "console.log(process.env.LOCKSTEP_FENCE); setTimeout(() => {}, 600_000)";
    const first = lock("killed", "--ttl", "10s", "--", node, "-e", script);
    let fence = "";
    first.child.stdout?.on("data", (data) => {
      fence += data;
    });
    await until(() => fence.length > 0);
    const stamp = ["sh", "-c", "echo at $(date +%s%3N) by $LOCKSTEP_FENCE"];
    const second = onTerminal("lock", "killed", "--store", store(), "--", ...stamp);
    await until(() => second.shown().includes("waiting for killed"));
    first.child.kill("SIGKILL");
    const killedAt = Date.now();
    expect(await second.status).toBe(0);
    const [, at, next = ""] = /at (\d+) by (\S+)/.exec(second.shown()) ?? [];
    expect(Number(at)).toBeGreaterThan(killedAt);
    // And the time that a busy machine takes to start a process.
    expect(Number(at) - killedAt).toBeLessThan(60_000);
    expect(next > fence.trim()).toBe(true);
  });

  test("exits with 75 if the lock is busy, at once or after the wait", async () => {
    const holder = lock("busy");
    await untilPrinted(holder);
    expect(await lockAtOnce("busy")).toMatchObject({ status: 75, stdout: "" });
    // The wait includes the first connection, which may take longer on a busy machine: 69 then.
    const waited = await until(async () => {
      const { status, stdout } = await lock("busy", "--wait", "2s", "--", node, "-e", "").finished;
      return status !== 69 && { status, stdout };
    });
    expect(waited).toEqual({ status: 75, stdout: "" });
    holder.child.kill("SIGINT");
    expect((await holder.finished).status).toBe(0);
  });

  test("holds the lock without a command until a signal, and prints one JSON line", async () => {
    const holder = lock("held");
    let said = "";
    holder.child.stdout?.on("data", (data) => {
      said += data;
    });
    const line = JSON.parse(await until(() => said.includes("\n") && said));
    expect(line).toEqual({
      name: "held",
      fence: expect.stringMatching(/^\d{10}\.\d{20}$/),
      ttlMillis: 10_000,
    });
    const info = JSON.parse(
      (await cliInProcess("inspect", "held", "--json", "--store", store())).stdout,
    );
    expect(info).toMatchObject({ name: "held", fence: line.fence });
    expect(info.holder).toContain(`:${holder.child.pid}/`);
    holder.child.kill("SIGTERM");
    expect((await holder.finished).status).toBe(0);
    const after = JSON.parse(
      (await cliInProcess("inspect", "held", "--json", "--store", store())).stdout,
    );
    expect(after.holder).toBeUndefined();
  });

  test("ends the command and exits with 76 if the lock is lost", async () => {
    const script = "process.on('SIGTERM', () => process.exit(0)); setInterval(() => {}, 1000)";
    const run = lock("lost", "--max-hold", "800ms", "--", node, "-e", script);
    const { status, stderr } = await run.finished;
    expect(status).toBe(76);
    expect(stderr).toContain("maxHold");
  });

  test("kills a command that does not end after the loss of the lock", async () => {
    const script = "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000)";
    const run = lock("stubborn", "--max-hold", "10s", "--", node, "-e", script);
    const start = performance.now();
    expect((await run.finished).status).toBe(76);
    expect(performance.now() - start).toBeGreaterThan(15_000);
  });

  test("forwards signals to the command and exits with its status", async () => {
    const script =
      "process.on('SIGTERM', () => process.exit(42)); console.log('ready'); setInterval(() => {}, 1000)";
    const run = lock("signals", "--", node, "-e", script);
    await new Promise((resolve) => run.child.stdout?.once("data", resolve));
    run.child.kill("SIGTERM");
    expect((await run.finished).status).toBe(42);
    const killed = await lock("signals", "--", node, "-e", "process.kill(process.pid, 'SIGKILL')")
      .finished;
    expect(killed.status).toBe(128 + 9);
  });

  test("leaves the queue if a signal interrupts its wait", async () => {
    const holder = lock("line");
    await untilPrinted(holder);
    const waiter = onTerminal("lock", "line", "--store", store(), "--", node, "-e", "");
    await until(() => waiter.shown().includes("waiting for line, held by"));
    waiter.type("\x03");
    expect(await waiter.status).toBe(128 + 2);
    holder.child.kill("SIGINT");
    await holder.finished;
    expect((await lockAtOnce("line")).status).toBe(0);
  });
});

/** Runs lockstep on a store. */
function runOn(store: () => string) {
  return (...args: readonly string[]) => {
    const env = { LOCKSTEP_SECRET: "a secret of more than 16 bytes", LOCKSTEP_STORE: store() };
    return startCli(args, { env }).finished;
  };
}

describe.concurrent.each(cells(["sqlite", "redis"]))("lockstep inventory on %s", (storeName) => {
  const run = runOn(useStore(storeName));

  test("sets, restocks, decrements and shows stock and its history", async () => {
    const answer = async (...args: readonly string[]) => {
      const { status, stdout } = await run("inventory", ...args);
      return { status, ...JSON.parse(stdout) };
    };
    expect(await answer("set", "kettle", "3")).toMatchObject({ outcome: "applied", remaining: 3 });
    expect(await answer("restock", "kettle", "2")).toMatchObject({ remaining: 5 });
    const order = ["decrement", "kettle", "4", "--operation-id", "kettle-1"];
    // Replayed as well, if the answer to its first attempt was lost on a busy machine.
    expect(await answer(...order)).toMatchObject({ status: 0, remaining: 1 });
    expect(await answer(...order)).toMatchObject({ status: 0, remaining: 1, replayed: true });
    expect(await answer("decrement", "kettle", "4")).toMatchObject({
      status: 1,
      outcome: "sold-out",
    });
    expect(await answer("get", "kettle")).toMatchObject({ onHand: 1, sold: 4, supplied: 5 });
    const history = await run("inventory", "history", "kettle");
    expect(history.stdout.match(/kettle-1/g)).toHaveLength(1);
    const list = await run("inventory", "list", "kett", "--json");
    expect(JSON.parse(list.stdout)).toMatchObject([{ sku: "kettle", onHand: 1 }]);
    expect(await run("inventory", "get", "cup")).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("does not exist"),
    });
  });
});

describe.concurrent.each(cells([...names, "redis"]))("a sealed fence on %s", (storeName) => {
  const run = runOn(useStore(storeName));

  test("is accepted by the inventory until a later holder has claimed the stock", async () => {
    await run("inventory", "set", "teapot", "5");
    const print = "process.stdout.write(process.env.LOCKSTEP_SEALED_FENCE)";
    const [early, late] = [
      (await run("lock", "sku/teapot", "--", node, "-e", print)).stdout,
      (await run("lock", "sku/teapot", "--", node, "-e", print)).stdout,
    ];
    const decrement = (fence: string, id: string) =>
      run("inventory", "decrement", "teapot", "1", "--operation-id", id, "--fence", fence);
    expect(JSON.parse((await decrement(late, "order-1")).stdout)).toMatchObject({ remaining: 4 });
    const refused = await decrement(early, "order-2");
    expect(refused).toMatchObject({ status: 1, stdout: "" });
    expect(refused.stderr).toContain("is late");
    const later = late.replace(/\d(?=:[^:]*:[^:]*$)/, (digit) => (digit === "9" ? "8" : "9"));
    const forged = await decrement(later, "order-3");
    expect(forged.stderr).toContain("not a valid fence");
    expect(JSON.parse((await run("inventory", "get", "teapot")).stdout)).toMatchObject({
      onHand: 4,
    });
  });
});

describe.concurrent("lockstep", () => {
  test("shows held locks and raises the generation", async () => {
    const { file, remove } = await temporaryFile();
    const store = ["--store", `sqlite:${file}`];
    expect((await cliInProcess("list", ...store)).stdout).toBe("none\n");
    const holder = startCli(["lock", "job", ...store]);
    await untilPrinted(holder);
    expect((await cliInProcess("list", ...store)).stdout).toContain("job");
    expect((await cliInProcess("list", "other", ...store)).stdout).toBe("none\n");
    const inspected = await cliInProcess("inspect", "job", ...store);
    expect(inspected.stdout).toContain("job");
    expect((await cliInProcess("raise-generation", ...store)).stdout).toBe("generation 1\n");
    expect((await cliInProcess("raise-generation", "--at-least", "7", ...store)).stdout).toBe(
      "generation 7\n",
    );
    holder.child.kill("SIGINT");
    await holder.finished;
    const print = "console.log(process.env.LOCKSTEP_FENCE)";
    const { stdout } = await cli("lock", "job", ...store, "--", node, "-e", print);
    expect(stdout).toMatch(/^0000000007\./);
    await remove();
  });

  test("passes the words behind -- to the command unchanged", async () => {
    const { file, remove } = await temporaryFile();
    const store = ["--store", `sqlite:${file}`];
    const words = ["1e3", "007", "0x10", "1.0", "", " x", "-5", "--foo", "--", "--store"];
    const print = "console.log(JSON.stringify(process.argv.slice(1)))";
    const run = await cli("lock", "0x1", ...store, "--", node, "-e", print, "--", ...words);
    expect(run).toMatchObject({ status: 0, stderr: "" });
    expect(JSON.parse(run.stdout)).toEqual(words);
    const inspected = await cliInProcess("inspect", "0x1", "--json", ...store);
    expect(JSON.parse(inspected.stdout)).toMatchObject({ name: "0x1", fence: expect.anything() });
    await remove();
  });

  test("ends all descendants of a command when its lock is lost", async () => {
    const { file, remove } = await temporaryFile();
    const options = ["--store", `sqlite:${file}`, "--max-hold", "4s"];
    const shell = (name: string, script: string) =>
      cli("lock", name, ...options, "--", "sh", "-c", script);
    const started = performance.now();
    const [lost, killed] = await Promise.all([
      // SIGTERM ends it (143), and the shell is there to say so: SIGKILL would end both.
      shell("lost", "trap : TERM; sleep 61.5 & wait; wait $!; echo $! $?"),
      shell("killed", `sh -c 'trap "" TERM; echo $$; sleep 61.5; sleep 61.5' & wait`),
    ]);
    expect(performance.now() - started).toBeGreaterThan(9_000);
    expect(lost.status).toBe(76);
    const [pid = "", status] = lost.stdout.trim().split(" ");
    expect(status).toBe("143");
    expect(isRunning(pid)).toBe(false);
    expect(killed.status).toBe(76);
    expect(isRunning(killed.stdout.trim())).toBe(false);
    await remove();
  });

  test("does not forward Ctrl-C, which the terminal sends to the command once", async () => {
    const { file, remove } = await temporaryFile();
    const count = `
      let count = 0;
      process.on("SIGINT", () => count++ || setTimeout(() => process.exit(40 + count), 500));
      console.log(process.stdin.isTTY ? "on a terminal" : "on none");
      setInterval(() => {}, 1000);`;
    const args = ["lock", "tty", "--store", `sqlite:${file}`, "--", node, "-e", count];
    const terminal = onTerminal(...args);
    await until(() => terminal.shown().includes("on a terminal"));
    terminal.type("\x03");
    expect(await terminal.status).toBe(41);
    await remove();
  });

  test("uses one default store per user, in any working directory", async () => {
    const { file, remove } = await temporaryFile();
    const [folder, home] = [dirname(file), join(dirname(file), "state")];
    const [a, b, c] = [join(folder, "a"), join(folder, "b"), join(folder, "c")];
    for (const cwd of [a, b, c]) await mkdir(cwd);
    const env = { XDG_STATE_HOME: home };
    const before = await startCli(["list"], { cwd: c, env }).finished;
    expect(before).toMatchObject({ status: 0, stdout: "none\n" });
    expect(await readdir(folder)).toEqual(["a", "b", "c"]);
    const holder = startCli(["lock", "nightly-report"], { cwd: a, env });
    await untilPrinted(holder);
    const list = await startCli(["list"], { cwd: c, env }).finished;
    expect(list.stdout).toContain("nightly-report");
    const args = ["lock", "nightly-report", "--wait", "0", "--", "echo", "ran"];
    const other = await startCli(args, { cwd: b, env }).finished;
    expect(other).toMatchObject({ status: 75, stdout: "" });
    expect(other.store).toBe(`sqlite:${home}/lockstep/lockstep.db`);
    holder.child.kill("SIGINT");
    await holder.finished;
    for (const cwd of [a, b, c]) expect(await readdir(cwd)).toEqual([]);
    await remove();
  });

  test("keeps its default store in the user's home, and prints the full path of a relative one", async () => {
    const { file, remove } = await temporaryFile();
    const home = dirname(file);
    const env = { HOME: home, XDG_STATE_HOME: "relative" };
    const own = await startCli(["inventory", "set", "a", "1"], { cwd: home, env }).finished;
    expect(own).toMatchObject({
      status: 0,
      store: `sqlite:${home}/.local/state/lockstep/lockstep.db`,
    });
    const args = ["inventory", "set", "a", "1", "--store", "sqlite:x.db"];
    const relative = await startCli(args, { cwd: home, env }).finished;
    expect(relative).toMatchObject({ status: 0, store: `sqlite:${home}/x.db` });
    const named = { ...env, LOCKSTEP_STORE: `sqlite:${file}` };
    const other = await startCli(["inventory", "get", "a"], { cwd: home, env: named }).finished;
    expect(other).toMatchObject({
      store: `sqlite:${file}`,
      stderr: expect.stringContaining("does not exist"),
    });
    await remove();
  });

  test("creates nothing when it only reads, not even in an existing SQLite file", async () => {
    const { file, remove } = await temporaryFile();
    const folder = dirname(file);
    const foreign = join(folder, "shop.db");
    {
      using db = new DatabaseSync(foreign);
      db.exec("CREATE TABLE teapot (id INTEGER PRIMARY KEY)");
    }
    const bytes = await readFile(foreign);
    const empty = { status: 0, stdout: "none\n" };
    for (const path of [join(folder, "no", "such.db"), join(folder, "such.db"), foreign]) {
      const read = (...args: readonly string[]) =>
        cliInProcess(...args, "--store", `sqlite:${path}`);
      expect(await read("list")).toMatchObject({ ...empty, store: `sqlite:${path}` });
      expect((await read("inspect", "a")).stdout).toContain("│ none ");
      expect(await read("inventory", "get", "a")).toMatchObject({ status: 1 });
      expect(await read("inventory", "history", "a")).toMatchObject(empty);
      expect(await read("inventory", "list")).toMatchObject(empty);
      expect(await read("runs", "list")).toMatchObject(empty);
      expect(await read("runs", "show", "a")).toMatchObject({ status: 1 });
      expect(await read("orders", "count")).toMatchObject({ status: 0 });
      const release = ["release", "a", "--fence", "0000000000.00000000000000000001"];
      expect((await read(...release)).status).toBe(1);
      expect((await read(...release, "--locks", `sqlite:${path}`)).status).toBe(1);
    }
    expect(await readdir(folder)).toEqual(["shop.db"]);
    expect(await readFile(foreign)).toEqual(bytes);
    await remove();
  });

  test("names invalid input and exits with 64", async () => {
    const none = `sqlite:${join(tmpdir(), "none.db")}`;
    const cases = [
      [["lock"], "<name> is missing"],
      [["lock", ""], "lock name"],
      [["lock", "x".repeat(513)], "512"],
      [["lock", "a", "--ttl", "0"], "ttl"],
      [["lock", "a", "--ttl=-5s"], "ttl"],
      [["lock", "a", "--ttl", "5x"], "ttl"],
      [["lock", "a", "--ttl", "NaN"], "ttl"],
      [["lock", "a", "--ttl", "9000d"], "ttl"],
      [["lock", "a", "--wait", "soon"], "wait"],
      [["lock", "a", "--tll", "5s"], "tll"],
      [["no-such-command"], "no-such-command"],
      [[], "command"],
      [["inventory", "set", "a", "-1"], "quantity"],
      [["inventory", "decrement", "a", "1.5"], "quantity"],
      [["inventory", "decrement", "a", "many"], "quantity"],
      [["inventory", "decrement", "a", ""], "quantity"],
      [["inventory", "set", "a", ""], "quantity"],
      [["inventory", "set", "a", "1e3"], "quantity"],
      [["inventory", "set", "a", "0x10"], "quantity"],
      [["inventory", "set", "a"], "<quantity> is missing"],
      [["inventory", "restock", "a"], "<quantity> is missing"],
      [["inventory", "restock", "a", " "], "quantity"],
      [["list", "--", "a"], "--"],
      [["inventory", "get", "a", "--", "b"], "--"],
      [["list", "--store", "sqlite:a.db", "--store", "sqlite:b.db"], "more than once"],
      [["lock", "a", "--ttl", "1s", "--ttl", "2s"], "more than once"],
      [
        ["inventory", "set", "a", "1", "--operation-id", "x", "--operation-id", "y"],
        "more than once",
      ],
      [["list", "--store", "sqlite://a.db"], "sqlite:shop.db"],
      [["list", "--store", "mysql://root:%zz@host/x"], "%25"],
      [["list", "--store", "nonsense:x"], "nonsense"],
      [["list", "--store", "x"], "URL"],
      [["list", "--store", "mysql://host"], "mysql"],
      [["list", "--store", "sqlite:"], "path"],
      [["oversell", "--stock", "0"], "stock"],
      [["oversell", "--workers", "1000"], "workers"],
      [["oversell", "--strategy", "hope"], "strategy"],
      [["oversell", "--fence", "claimed"], "fence"],
      [["oversell", "--strategy", "decr-and-test", "--store", none], "redis:"],
      [["oversell", "--decide", "select-for-update", "--store", none], "mysql:"],
      [["oversell", "--store", none, "--ttl", "50ms"], "ttl"],
      [["oversell", "--report", "x.html", "--buyers", "500"], "--report"],
      [["servers", "up", "oracle"], "oracle"],
      [["raise-generation", "--at-least", "-1"], "--at-least"],
      [["raise-generation", "--at-least", "0x2"], "--at-least"],
      [["inventory", "list", "--limit", "1e2"], "--limit"],
    ] as const;
    for (const [args, hint] of cases) {
      const { status, stdout, stderr } = await cliInProcess(...args);
      expect({ args, status, stdout }).toEqual({ args, status: 64, stdout: "" });
      expect(stderr).toContain(hint);
      expect(stderr).not.toContain("    at ");
    }
  });

  test("exits with 69 if a file cannot be opened", async () => {
    for (const path of ["/etc/passwd/y.db", "/proc/no-such-folder/y.db", "/etc"]) {
      const args = ["inventory", "set", "a", "1", "--store", `sqlite:${path}`];
      const { status, stdout, stderr } = await cli(...args);
      expect({ path, status, stdout }).toEqual({ path, status: 69, stdout: "" });
      expect(stderr).toContain(path);
      expect(stderr).not.toContain("    at ");
    }
  });

  test("exits with 69 if the store is unavailable, and never shows a secret", async () => {
    const secret = "canary-3f81";
    for (const args of [
      ["lock", "a", "--store", `mysql://shop:${secret}@127.0.0.1:1/shop`, "--", node, "-e", ""],
      ["list", "--store", `mysql://shop:${secret}@127.0.0.1:1/shop?connections=3`],
      ["list", "--store", `mysql://shop:${secret}@127.0.0.1:1/shop?token=${secret}`],
      ["list", "--store", `mysql://shop:${secret}/x@127.0.0.1:1/shop`],
      ["list", "--store", `mysql://shop:${secret}@127.0.0.1:1`],
      ["list", "prefix", `mysql://shop:${secret}@127.0.0.1:1/shop`],
      ["oversell", "--store", `mysql://shop:${secret}@127.0.0.1:1/shop`],
      ["list", "--store", `mysql://shop:my ${secret}@127.0.0.1:1/shop`],
      ["list", "--store", `mysql://shop:my ${secret}@127.0.0.1:port/shop`],
      ["list", "--store", `mysql://shop:%zz${secret}@127.0.0.1:1/shop`],
      ["list", "--store", `mysql://shop:12?${secret}@127.0.0.1:1/shop`],
      ["list", "prefix", `mysql://shop:my ${secret}@127.0.0.1:1/shop`],
    ]) {
      const { status, stdout, stderr } = await cliInProcess(...args);
      expect([64, 69]).toContain(status);
      expect(stdout + stderr).not.toContain(secret);
    }
    const env = { LOCKSTEP_STORE: `mysql://shop:${secret}@127.0.0.1:1/shop` };
    const help = await startCli(["lock", "--help"], { env }).finished;
    expect(help.stdout).not.toContain(secret);
    const short = await startCli(["list"], { env: { LOCKSTEP_SECRET: "short" } }).finished;
    expect(short).toMatchObject({ status: 64, stderr: expect.stringContaining("LOCKSTEP_SECRET") });
    expect(short.stderr).not.toContain('"short"');
  });

  test("shows help with an example for every command", async () => {
    const commands = [
      [],
      ["lock"],
      ["inspect"],
      ["list"],
      ["migrate"],
      ["raise-generation"],
      ["inventory"],
      ["inventory", "get"],
      ["inventory", "set"],
      ["inventory", "restock"],
      ["inventory", "decrement"],
      ["inventory", "history"],
      ["worker"],
      ["run"],
      ["runs"],
      ["runs", "list"],
      ["runs", "show"],
      ["runs", "resume"],
      ["runs", "cancel"],
      ["runs", "signal"],
      ["runs", "limits"],
      ["runs", "purge"],
      ["orders"],
      ["orders", "add"],
      ["orders", "fulfil"],
      ["orders", "count"],
      ["oversell"],
      ["servers"],
      ["servers", "up"],
      ["servers", "down"],
      ["servers", "status"],
    ];
    for (const command of commands) {
      const { status, stdout } = await cliInProcess(...command, "--help");
      expect({ command, status }).toEqual({ command, status: 0 });
      expect(stdout).toMatch(/Examples:\s+lockstep/);
    }
  });

  test("runs nothing and exits with 127 if the command does not exist", async () => {
    const { file, remove } = await temporaryFile();
    const missing = await cli("lock", "a", "--store", `sqlite:${file}`, "--", "no-such-program");
    expect(missing).toMatchObject({ status: 127, stdout: "" });
    const notExecutable = await cli("lock", "a", "--store", `sqlite:${file}`, "--", dirname(file));
    expect(notExecutable.status).toBe(126);
    await remove();
  });
});
