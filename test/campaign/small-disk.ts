import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { statfs } from "node:fs/promises";
import { promisify } from "node:util";
import { type Database, raw, sql } from "../../core/database/sql.ts";
import { open } from "../../infra/open.ts";
import { type TemporaryFolder, temporaryFolder } from "../../infra/servers/reap.ts";
import type { ServerNode } from "../../infra/servers/server.ts";
import { startAgain } from "../support/restart.ts";
import { until } from "../support/until.ts";
import type { Fault } from "./nemesis.ts";

/** The bytes of a disk with room: more than a campaign of a million operations writes. */
const SIZE = 8_000_000_000;

const run = promisify(execFile);

/** A file system in memory for the files of a store, which can be full. */
export class SmallDisk implements AsyncDisposable {
  readonly #folder: TemporaryFolder;

  private constructor(folder: TemporaryFolder) {
    this.#folder = folder;
  }

  /** Resolves to undefined for another user than root, who may not mount. */
  static async mount(): Promise<SmallDisk | undefined> {
    const folder = await temporaryFolder("disk");
    const options = `size=${SIZE},mode=1777`;
    const mounted = run("mount", ["-t", "tmpfs", "-o", options, "tmpfs", folder.path]);
    const isMounted = await mounted.then(
      () => true,
      () => false,
    );
    if (isMounted) return new SmallDisk(folder);
    await folder.remove();
    return undefined;
  }

  get path(): string {
    return this.#folder.path;
  }

  /** Leaves no room beside the files. */
  async fill(): Promise<void> {
    const fillOnce = async () => {
      const { blocks, bfree, bsize } = await statfs(this.path);
      await this.#resize((blocks - bfree) * bsize);
      return true;
    };
    // Files that grow meanwhile do not fit.
    await until(() => fillOnce().catch(() => false));
  }

  makeRoom(): Promise<void> {
    return this.#resize(SIZE);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await run("umount", ["--lazy", this.path]);
    await this.#folder.remove();
  }

  async #resize(size: number): Promise<void> {
    await run("mount", ["-o", `remount,size=${size}`, this.path]);
  }
}

/** Why the disk of a store cannot be full. */
export const NOT_MOUNTED = "only root may mount a disk of its own for the store";

interface Disk {
  readonly disk: SmallDisk | undefined;

  /** The processes with files on the disk. */
  readonly nodes: readonly ServerNode[];

  /** Writes to the store until the disk is full. Rejects then. */
  readonly write: () => Promise<unknown>;
}

/** Fills the disk until the store has refused a write for it or has ended, and makes room after a while. */
export function diskFull({ disk, nodes, write }: Disk): Fault | string {
  if (!disk) return NOT_MOUNTED;
  return async ({ pause }) => {
    await disk.fill();
    const isRefused = () =>
      write().then(
        () => false,
        (error: Error) => /\bfull\b|No space left/.test(error.message),
      );
    try {
      await until(async () => (await isRefused()) || nodes.some(hasEnded), 30_000);
      await pause();
    } finally {
      await disk.makeRoom();
      await Promise.all(nodes.filter(hasEnded).map(startAgain));
    }
    return true;
  };
}

function hasEnded(node: ServerNode): boolean {
  try {
    return !process.kill(node.pid, 0);
  } catch {
    return true;
  }
}

/** Makes a table that may grow until the disk is full. */
export async function makeJunkTable(database: Database): Promise<void> {
  const type = raw(database.dialect.name === "postgres" ? "BYTEA" : "LONGBLOB");
  await database.batch([sql`CREATE TABLE campaign_junk (bytes ${type})`]);
}

/** Returns writes of a megabyte each to that table. */
export function junkIn(url: string): () => Promise<unknown> {
  return async () => {
    await using opened = await open(url);
    if (!opened.has("database")) throw new Error(`${url} is no SQL database`);
    await opened.database.batch([
      sql`INSERT INTO campaign_junk VALUES (${randomBytes(1_000_000)})`,
    ]);
  };
}
