import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  openZooKeeper,
  type Session,
  zookeeperStore,
} from "../../../core/stores/zookeeper/index.ts";
import { findOrInstall } from "../../../infra/servers/binaries.ts";
import { runProgram } from "../../support/script.ts";
import { pause, until } from "../../support/until.ts";
import { freshRoot, lineOf, singleZooKeeper } from "../../support/zookeeper.ts";

const LONG = 30_000;

const ARCHIVES = "/usr/share/java";

/** Other people's locks, each in a small Java program that Java compiles by itself. */
const LOCKS = [
  { lock: "ZooKeeper's own recipe", program: "WriteLockHolder", archive: "zookeeper-recipes-lock" },
  { lock: "Curator's mutex", program: "CuratorHolder", archive: "curator-recipes" },
];

/** What they need, in Debian's packages. */
const REQUIRED = {
  binaries: ["javac"],
  needs: LOCKS.map(({ archive }) => `${ARCHIVES}/${archive}.jar`),
  packages: ["default-jdk-headless", "libzookeeper-java", "libcurator-recipes-java"],
};

const { servers } = singleZooKeeper();
const zookeeper = openZooKeeper({ servers });
let session: Session;

beforeAll(async () => {
  const found = await findOrInstall(REQUIRED, (step) => process.stderr.write(`servers: ${step}\n`));
  if (!found) throw new Error(`install ${REQUIRED.packages.join(", ")}`);
  session = await zookeeper.openSession(LONG);
});

afterAll(() => zookeeper.close());

function holder({ program, archive }: (typeof LOCKS)[number], path: string) {
  const source = fileURLToPath(new URL(`${program}.java`, import.meta.url));
  const archives = [archive, "zookeeper", "slf4j-nop"].map((name) => `${ARCHIVES}/${name}.jar`);
  const args = ["-cp", archives.join(":"), source, servers[0] ?? "", path];
  return runProgram("java", args);
}

const waitersOf = (path: string, count: number) =>
  until(async () => (await lineOf(session, path)).length === count, 20_000);

test.concurrent.each(LOCKS)(
  "$lock and this library wait for each other, in one line, whoever is first",
  async (other) => {
    const root = freshRoot();
    const path = `${root}/job`;
    await using locks = zookeeperStore(zookeeper, { root, label: "ours" });
    await using others = zookeeperStore(zookeeper, { root });
    const options = { ttl: LONG, wait: LONG };
    const first = await locks.lock("job", options);
    using theirs = holder(other, path);
    expect(await theirs.line()).toBe("waiting");
    const waiting = others.lock("job", options);
    await waitersOf(path, 3);
    let isTheirs = false;
    const line = theirs.line().then((said) => {
      isTheirs = true;
      return said;
    });
    await pause(100);
    expect(isTheirs).toBe(false);
    expect(await locks.inspect("job")).toMatchObject({ holder: "ours", waiters: 2 });
    await first.unlock();
    expect(await line).toBe("locked");
    expect(await locks.tryLock("job", { ttl: LONG })).toBeUndefined();
    expect(await locks.inspect("job")).toMatchObject({
      // One writes its address into its node, the other nothing that can be read.
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
  60_000,
);
