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

const JARS = ["zookeeper", "zookeeper-recipes-lock", "slf4j-nop"];

const classPath = JARS.map((name) => `/usr/share/java/${name}.jar`).join(":");
const source = fileURLToPath(new URL("WriteLockHolder.java", import.meta.url));

const { servers } = singleZooKeeper();
const zookeeper = openZooKeeper({ servers });
let session: Session;

beforeAll(async () => {
  const compiler = { binaries: ["javac"], packages: ["default-jdk-headless"] };
  if (!(await findOrInstall(compiler, () => {}))) throw new Error("there is no Java compiler here");
  session = await zookeeper.openSession(LONG);
});

afterAll(() => zookeeper.close());

/** ZooKeeper's own lock recipe, in Java. */
const writeLock = (path: string) =>
  runProgram("java", ["-cp", classPath, source, servers[0] ?? "", path]);

const waitersOf = (path: string, count: number) =>
  until(async () => (await lineOf(session, path)).length === count, 20_000);

test("ZooKeeper's own lock recipe and this library wait for each other, in one line, whoever is first", async () => {
  const root = freshRoot();
  const path = `${root}/job`;
  await using locks = zookeeperStore(zookeeper, { root, label: "ours" });
  await using others = zookeeperStore(zookeeper, { root });
  const options = { ttl: LONG, wait: LONG };
  const first = await locks.lock("job", options);
  using theirs = writeLock(path);
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
    holder: expect.stringMatching(/^session 0x[0-9a-f]+$/),
    expiresIn: undefined,
    waiters: 1,
  });
  theirs.child.kill("SIGTERM");
  const last = await waiting;
  expect(last.fence.token > first.fence.token).toBe(true);
  expect(await last.unlock()).toBe("released");
  await waitersOf(path, 0);
}, 60_000);
