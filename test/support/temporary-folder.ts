import { chmod } from "node:fs/promises";
import { temporaryFolder } from "../../infra/servers/reap.ts";

/** The folder of this process, once it has one. */
const ID = `tests-${process.pid}`;

/**
 * Puts the temporary files of the whole run into one folder, which is removed at the end, also of an interrupted run. A
 * second call changes nothing.
 */
export default async function setUp(): Promise<(() => Promise<void>) | undefined> {
  const before = process.env.TMPDIR;
  if (before?.includes(ID)) return undefined;
  const folder = await temporaryFolder(ID);
  // For servers that run as another user.
  await chmod(folder.path, 0o711);
  process.env.TMPDIR = folder.path;
  return async () => {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
    await folder.remove();
  };
}
