import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { zookeeperClient } from "../../../core/stores/zookeeper/client/client.ts";
import type { ZooKeeperSession } from "../../../core/stores/zookeeper/client/zookeeper.ts";
import { zookeeperLocks } from "../../../core/stores/zookeeper/locks/index.ts";
import { findOrThrow } from "../../../infra/servers/binaries.ts";
import { runProgram } from "../../support/script.ts";
import { pause, until } from "../../support/until.ts";
import { contendersOf, freshRoot, singleZooKeeper } from "../../support/zookeeper.ts";

const LONG = 60_000;

/** The longest start of a virtual machine on a busy machine. */
const LONGEST = 120_000;

const ARCHIVES = "/usr/share/java";

/** The locks of other libraries, each in a small Java program. */
const CURATOR = {
  lock: "Curator's mutex",
  program: "CuratorHolder",
  archive: "curator-recipes",
};
const LOCKS = [
  { lock: "ZooKeeper's own recipe", program: "WriteLockHolder", archive: "zookeeper-recipes-lock" },
  CURATOR,
];

/** The Java libraries of these programs, from Debian's packages. */
const REQUIRED = {
  binaries: ["javac"],
  needs: LOCKS.map(({ archive }) => `${ARCHIVES}/${archive}.jar`),
  packages: ["default-jdk-headless", "libzookeeper-java", "libcurator-recipes-java"],
};

const { servers } = singleZooKeeper();
const zookeeper = zookeeperClient({ servers });
let session: ZooKeeperSession;

/** The directory of the compiled programs. */
let classes: string;

beforeAll(async () => {
  await findOrThrow(REQUIRED, (step) => process.stderr.write(`servers: ${step}\n`));
  session = await zookeeper.openSession(LONG);
  classes = await mkdtemp(join(tmpdir(), "lockstep-java-"));
  const sources = LOCKS.map(({ program }) => {
    return fileURLToPath(new URL(`${program}.java`, import.meta.url));
  });
  const path = REQUIRED.needs.concat(`${ARCHIVES}/zookeeper.jar`).join(":");
  using compiler = runProgram("javac", ["-cp", path, "-d", classes, ...sources]);
  expect(await compiler.ended).toBe(0);
}, LONGEST);

afterAll(async () => {
  await zookeeper.close();
  await rm(classes, { recursive: true });
});

function holder({ program, archive }: (typeof LOCKS)[number], path: string) {
  const archives = [archive, "zookeeper", "slf4j-nop"].map((name) => `${ARCHIVES}/${name}.jar`);
  const classPath = [classes, ...archives].join(":");
  const quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
  return runProgram("java", [...quick, "-cp", classPath, program, servers[0] ?? "", path]);
}

/** A name as used with Curator. */
const NAME = "locks/job";

const waitersOf = (path: string, count: number) =>
  until(async () => (await contendersOf(session, path)).length === count);

test.concurrent.each(LOCKS)(
  "$lock and this library wait for each other, in one queue, whichever is first",
  async (other) => {
    const root = freshRoot();
    const path = `${root}/${NAME}`;
    await using locks = zookeeperLocks(zookeeper, { root, label: "ours" });
    await using others = zookeeperLocks(zookeeper, { root });
    const options = { ttl: LONG, wait: LONG };
    const first = await locks.lock(NAME, options);
    using theirs = holder(other, path);
    expect(await theirs.line()).toBe("waiting");
    // Curator has tried once without waiting, and enters the queue only now.
    await waitersOf(path, 2);
    const waiting = others.lock(NAME, options);
    await waitersOf(path, 3);
    let isTheirs = false;
    const line = theirs.line().then((said) => {
      isTheirs = true;
      return said;
    });
    await pause(100);
    expect(isTheirs).toBe(false);
    expect(await locks.inspect(NAME)).toMatchObject({
      holder: expect.stringMatching(/^ours\//),
      waiters: 2,
    });
    await first.unlock();
    expect(await line).toBe("locked");
    expect(await locks.tryLock(NAME, { ttl: LONG })).toBeUndefined();
    expect(await locks.inspect(NAME)).toMatchObject({
      // Curator writes an address into its node, the other library no readable text.
      holder: expect.stringMatching(/^session 0x[0-9a-f]+$|^[0-9.]+$/),
      expiresIn: undefined,
      waiters: 1,
    });
    theirs.child.kill("SIGTERM");
    const last = await waiting;
    expect(last.fence.token > first.fence.token).toBe(true);
    expect(await last.unlock()).toBe("released");
    await waitersOf(path, 0);
  },
  LONGEST,
);

test.concurrent(
  "Curator's mutex and this library do not wait for nested names",
  async () => {
    const root = freshRoot();
    await using locks = zookeeperLocks(zookeeper, { root });
    const options = { ttl: LONG, wait: LONG };
    // Ten digits at the end of a name look like a contender's sequence.
    const nested = ["job/daily", "job/1700000000", "job/2026/line-0000000000"];
    for (const name of nested) await locks.lock(name, options);
    const lock = await locks.lock("job", options);
    using theirs = holder(CURATOR, `${root}/job`);
    expect(await theirs.line()).toBe("waiting");
    await lock.unlock();
    expect(await theirs.line()).toBe("locked");
    expect(await locks.tryLock("job", options)).toBeUndefined();
    expect((await locks.list("job")).map(({ name }) => name)).toEqual(["job", ...nested].sort());
  },
  LONGEST,
);
