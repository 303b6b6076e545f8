import {
  asNumber,
  asText,
  type Database,
  type Dialect,
  type Row,
  type Sql,
  sql,
} from "../../../database/sql.ts";
import type { NewRun } from "../../../journal/runs.ts";
import { DEFAULT_QUEUE, type WaitingRun } from "../../../journal/turn-order.ts";
import type { Millis } from "../../../lock/time.ts";
import { isFrom, type RunSource, readDue, selectDue } from "./due-runs.ts";

/** The runs of one workflow version with the same queue, priority and key. */
export interface Backlog extends RunSource {
  /** The priority with its sign changed. */
  readonly level: number;

  /** "" without a key. */
  readonly key: string;
}

/** The backlogs that one claim looks at: so many of the highest priorities, and as many of the others, by turns. */
const MOST_BACKLOGS = 32;

/** Runs that are read for each run to claim: many backlogs have no due run. */
const RUNS_PER_CLAIM = 4;

/** How long a read of backlogs is used: so long may a new key wait behind others. */
const READ_KEPT: Millis = 1_000;

/** A backlog that was purged since is added again after this time. */
const ADDED_KEPT: Millis = 60_000;

/** The backlogs that a journal's client remembers. */
export class BacklogCache {
  readonly #added = new Set<string>();
  #addedSince = performance.now();
  readonly #reads = new Map<
    string,
    { readonly backlogs: readonly Backlog[]; readonly at: number }
  >();
  readonly #lastOf = new Map<string, Backlog>();

  hasAdded(backlog: Backlog): boolean {
    if (performance.now() - this.#addedSince > ADDED_KEPT) {
      this.#added.clear();
      this.#addedSince = performance.now();
    }
    return this.#added.has(JSON.stringify(backlog));
  }

  added(backlog: Backlog): void {
    this.#added.add(JSON.stringify(backlog));
  }

  /** Reads the source's first backlogs, and those after the last ones that were read. */
  async read(
    database: Database,
    source: RunSource,
    limit: AbortSignal,
  ): Promise<readonly Backlog[]> {
    const id = JSON.stringify([source.queue, source.workflow, source.version]);
    const known = this.#reads.get(id);
    if (known && performance.now() - known.at < READ_KEPT) return known.backlogs;
    const first = await readBacklogs(database, source, undefined, limit);
    const last = this.#lastOf.get(id) ?? first.at(-1);
    const others =
      last && first.length === MOST_BACKLOGS
        ? await readBacklogs(database, source, last, limit)
        : [];
    if (others.length < MOST_BACKLOGS) this.#lastOf.delete(id);
    else this.#lastOf.set(id, others.at(-1) as Backlog);
    const backlogs = [...first, ...others];
    // With more backlogs than one claim looks at, each claim goes on.
    const at = others.length > 0 ? Number.NEGATIVE_INFINITY : performance.now();
    this.#reads.set(id, { backlogs, at });
    return backlogs;
  }
}

/** The backlog of a new run. */
export function backlogOf({ workflow, version, turn = {} }: NewRun): Backlog {
  const { queue = DEFAULT_QUEUE, key = "", priority = 0 } = turn;
  return { queue, workflow, version, level: -priority, key };
}

/** Adds a backlog, unless it exists. */
export function addBacklog({ onConflict }: Dialect, backlog: Backlog): Sql {
  const { queue, workflow, version, level, key } = backlog;
  return sql`
    INSERT INTO lockstep_backlog (queue, workflow, version, level, turn_key)
    VALUES (${queue}, ${workflow}, ${version}, ${level}, ${key})
    ${onConflict("queue, workflow, version, level, turn_key")} turn_key = lockstep_backlog.turn_key`;
}

/** Reads the due runs at the heads of the sources' backlogs, for a claim of `most` runs. */
export async function dueInBacklogs(
  database: Database,
  cache: BacklogCache,
  sources: readonly RunSource[],
  most: number,
  limit: AbortSignal,
): Promise<readonly WaitingRun[]> {
  const backlogs: Backlog[] = [];
  for (const source of sources) backlogs.push(...(await cache.read(database, source, limit)));
  // The runs that are due longest are those of the only backlog.
  if (backlogs.length <= 1) return [];
  const perBacklog = Math.ceil((RUNS_PER_CLAIM * most) / backlogs.length);
  const parts = backlogs.map((backlog) =>
    selectDue(database.dialect.now, sql`${isFrom(backlog)} AND ${isIn(backlog)}`, perBacklog),
  );
  return readDue(database, parts, limit);
}

function isIn({ level, key }: Backlog): Sql {
  return sql`priority = ${-level} AND turn_key = ${key}`;
}

async function readBacklogs(
  database: Database,
  source: RunSource,
  after: Backlog | undefined,
  limit: AbortSignal,
): Promise<readonly Backlog[]> {
  const isLater = after
    ? sql`AND (level > ${after.level} OR (level = ${after.level} AND turn_key > ${after.key}))`
    : sql``;
  const rows = await database.read(
    sql`
      SELECT level, turn_key FROM lockstep_backlog WHERE ${isFrom(source)} ${isLater}
      ORDER BY level, turn_key LIMIT ${MOST_BACKLOGS}`,
    limit,
  );
  const { queue, workflow, version } = source;
  return rows.map((row) => ({
    ...{ queue, workflow, version },
    level: asNumber(row.level),
    key: asText(row.turn_key),
  }));
}

/** The backlog of a purged run. */
export function backlogIn(row: Row): Backlog {
  return {
    queue: asText(row.queue),
    workflow: asText(row.workflow),
    version: asNumber(row.version),
    level: -asNumber(row.priority),
    key: asText(row.turn_key),
  };
}

/** Deletes a backlog without runs. Not with NOT EXISTS, for which PostgreSQL scans the table of runs if it expects many. */
export function deleteBacklog(backlog: Backlog): Sql {
  return sql`
    DELETE FROM lockstep_backlog
    WHERE ${isFrom(backlog)} AND level = ${backlog.level} AND turn_key = ${backlog.key}
      AND (
        SELECT r.run_id FROM lockstep_run AS r
        WHERE r.queue = ${backlog.queue} AND r.workflow = ${backlog.workflow}
          AND r.version = ${backlog.version} AND r.priority = ${-backlog.level}
          AND r.turn_key = ${backlog.key}
        ORDER BY r.due_at LIMIT 1) IS NULL`;
}
