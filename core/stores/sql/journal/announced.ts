import { type Database, type Notices, type Sql, sql } from "../../../database/sql.ts";
import { elapsedSince, type Instant, instant, type Millis } from "../../../lock/time.ts";
import { type WakeUps, wakeUpsOver } from "../../../lock/wake-ups.ts";

/** The channel of runs that have become due. Its texts are the clients that made them due. */
const DUE = "lockstep_due";

/** The shortest time between two writes with a notice: commits with notices wait for each other. */
const PAUSE: Millis = 20;

/** The means of a journal to wake the workers of other processes. */
export interface Announced {
  /** The same database, whose writes carry a notice. In a burst, only the first one does. */
  readonly due: Database;
  readonly wakeUps: WakeUps;
}

export function announced(database: Database, notices: Notices): Announced {
  const client = crypto.randomUUID();
  const notice = sql`SELECT ${notices.send(DUE, sql`${client}`)}`;
  let lastAt: Instant | undefined;
  let isAnnounced = false;
  const withNotice = (statements: readonly Sql[]): readonly Sql[] => {
    isAnnounced = lastAt === undefined || elapsedSince(lastAt) >= PAUSE;
    if (!isAnnounced) return statements;
    lastAt = instant();
    return [...statements, notice];
  };
  const due: Database = {
    address: database.address,
    dialect: database.dialect,
    read: (statement, signal) => database.read(statement, signal),
    async batch(statements, signal, lane) {
      const results = await database.batch(withNotice(statements), signal, lane);
      return results.slice(0, statements.length);
    },
    transaction(body, signal) {
      return database.transaction(({ batch, commit }) => {
        const commitWithNotice: typeof commit = async (statements) =>
          (await commit(withNotice(statements))).slice(0, statements.length);
        return body({ batch, commit: commitWithNotice });
      }, signal);
    },
    close: () => database.close(),
    [Symbol.asyncDispose]: () => database.close(),
  };
  const channel = {
    /** Tells of writes without a notice. */
    async publish(_: string, signal: AbortSignal) {
      if (!isAnnounced) await database.batch([notice], signal, "locks");
      isAnnounced = false;
    },
    subscribe: (onText: (text: string | undefined) => void) => notices.listen(DUE, onText),
  };
  return { due, wakeUps: wakeUpsOver(channel, (sending) => sending, client) };
}
