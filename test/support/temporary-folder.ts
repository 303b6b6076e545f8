import { constants } from "node:fs";
import { access, chmod, readFile, rm, statfs } from "node:fs/promises";
import { temporaryFolder } from "../../infra/servers/reap.ts";

/** The folder of this process, once it has one. */
const ID = `tests-${process.pid}`;

/** A file system in memory: servers sync to it at once, however busy the disk is. */
const MEMORY = "/dev/shm";

/** Bytes that a whole run may fill. */
const ROOM = 8 * 2 ** 30;

/**
 * Puts the temporary files of the whole run into one folder, in memory where there is room, unless `TMPDIR` says where.
 * The folder is removed at the end, also of an interrupted run. A second call changes nothing.
 */
export default async function setUp(): Promise<(() => Promise<void>) | undefined> {
  const before = process.env.TMPDIR;
  if (before?.includes(ID)) return undefined;
  if (before === undefined && (await hasRoomInMemory())) process.env.TMPDIR = MEMORY;
  const folder = await temporaryFolder(ID);
  // For servers that run as another user.
  await chmod(folder.path, 0o711);
  process.env.TMPDIR = folder.path;
  return async () => {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
    // Not `folder.remove()`: a worker of an interrupted run may still write, and the reaper comes after it.
    await rm(folder.path, { recursive: true, force: true, maxRetries: 10 });
  };
}

async function hasRoomInMemory(): Promise<boolean> {
  try {
    await access(MEMORY, constants.W_OK);
    const [{ bavail, bsize }, mounts] = await Promise.all([
      statfs(MEMORY),
      readFile("/proc/mounts", "utf8"),
    ]);
    const options = mounts.split("\n").find((line) => line.split(" ")[1] === MEMORY);
    return bavail * bsize >= ROOM && options?.includes("noexec") === false;
  } catch {
    return false;
  }
}
