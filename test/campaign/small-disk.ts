import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { statfs } from "node:fs/promises";
import { promisify } from "node:util";
import { type Database, raw, type Sql, sql } from "../../core/database/sql.ts";
import { open } from "../../infra/open.ts";
import { type TemporaryFolder, temporaryFolder } from "../../infra/servers/reap.ts";
import type { ServerNode } from "../../infra/servers/server.ts";
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

  /** Writes to the store. Rejects when the disk is full. */
  readonly write: () => Promise<unknown>;

  /** Gives up room that the store keeps for later. */
  readonly shrink?: () => Promise<unknown>;
}

/** How long the store may find room on a full disk, in milliseconds. */
const FULL_LIMIT = 30_000;

/** Fills the disk until the store has refused a write for it or has ended, and makes room after a while. */
export function diskFull({ disk, nodes, write, shrink = async () => {} }: Disk): Fault | string {
  if (!disk) return NOT_MOUNTED;
  return async ({ pause }) => {
    await shrink();
    await disk.fill();
    const isRefused = () =>
      write().then(
        () => false,
        (error: Error) => /\bfull\b|No space left/.test(error.message),
      );
    const hasMet = async () => (await isRefused()) || nodes.some((node) => node.hasEnded);
    try {
      const isMet = await until(hasMet, FULL_LIMIT).catch(() => false);
      await pause();
      return isMet;
    } finally {
      await disk.makeRoom();
    }
  };
}

/** Makes a table that may grow until the disk is full. */
export async function makeJunkTable(database: Database): Promise<void> {
  const type = raw(database.dialect.name === "postgres" ? "BYTEA" : "LONGBLOB");
  await database.batch([sql`CREATE TABLE campaign_junk (bytes ${type})`]);
}

/** Returns how to write a megabyte to that table, and how to empty it. */
export function junkIn(url: string): Pick<Disk, "write" | "shrink"> {
  const execute = async (statement: Sql) => {
    await using opened = await open(url);
    if (!opened.has("database")) throw new Error(`${url} is no SQL database`);
    await opened.database.batch([statement]);
  };
  return {
    write: () => execute(sql`INSERT INTO campaign_junk VALUES (${randomBytes(1_000_000)})`),
    shrink: () => execute(sql`DELETE FROM campaign_junk`),
  };
}
