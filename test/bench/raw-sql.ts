import { DatabaseSync, StatementSync } from "node:sqlite";
import mysql from "mysql2/promise";
import pg from "pg";

/** One connection of a database's client, without Lockstep. */
export interface RawSql {
  query(text: string): Promise<unknown>;

  /**
   * Records what all clients of this package send during the work. Returns a function that sends the same over this
   * connection.
   */
  record(work: () => Promise<unknown>): Promise<() => Promise<void>>;
  close(): Promise<void>;
}

/** Connects to the database of a store's URL. */
export async function rawSql(url: string): Promise<RawSql> {
  if (url.startsWith("sqlite:")) return rawSqlite(url.slice("sqlite:".length));
  return url.startsWith("postgres:") ? rawPostgres(url) : rawMysql(url);
}

async function rawMysql(uri: string): Promise<RawSql> {
  const connection = await mysql.createConnection({ uri, multipleStatements: true });
  return {
    query: (text) => connection.query(text),
    record: async (work) => {
      const texts: string[] = [];
      // The connection that has callbacks: the store's are of the same class.
      const callbacks = Object(connection).connection;
      const onCall: OnCall = (_, [options]) => texts.push((options as { sql: string }).sql);
      await whileSpied(callbacks, ["query"], onCall, work);
      return inOrder(texts, (text) => connection.query(text));
    },
    close: () => connection.end(),
  };
}

async function rawPostgres(connectionString: string): Promise<RawSql> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  return {
    query: (text) => client.query(text),
    record: async (work) => {
      const texts: string[] = [];
      const onCall: OnCall = (_, [text]) => texts.push(text as string);
      await whileSpied(client, ["query"], onCall, work);
      return inOrder(texts, (text) => client.query(text));
    },
    close: () => client.end(),
  };
}

/** With the settings of Lockstep's own connection, and with prepared statements. */
function rawSqlite(file: string): RawSql {
  const db = new DatabaseSync(file, { timeout: 60_000 });
  db.exec("PRAGMA journal_mode = WAL");
  db.exec("PRAGMA synchronous = FULL");
  const prepared = new Map<string, StatementSync>();
  const prepare = (text: string) => {
    const statement = prepared.get(text) ?? db.prepare(text);
    prepared.set(text, statement);
    return statement;
  };
  return {
    query: async (text) => prepare(text).run(),
    record: async (work) => {
      const calls: (() => unknown)[] = [];
      const onExec: OnCall = (_, [text]) => calls.push(() => db.exec(text as string));
      const onStatement: OnCall = (statement, values) => {
        const own = prepare((statement as StatementSync).sourceSQL);
        calls.push(() => own.all(...(values as string[])));
      };
      await whileSpied(DatabaseSync.prototype, ["exec"], onExec, () =>
        whileSpied(StatementSync.prototype, ["run", "all"], onStatement, work),
      );
      return inOrder(calls, async (call) => call());
    },
    close: async () => db.close(),
  };
}

function inOrder<T>(parts: readonly T[], send: (part: T) => Promise<unknown>) {
  return async () => {
    for (const part of parts) await send(part);
  };
}

type OnCall = (self: unknown, args: readonly unknown[]) => unknown;

/** Calls `onCall` before each call of the methods during the work, on all objects that inherit them as this one does. */
async function whileSpied(
  object: object,
  names: readonly string[],
  onCall: OnCall,
  work: () => Promise<unknown>,
): Promise<void> {
  const restored = names.map((name) => {
    const owner = ownerOf(object, name);
    const method = owner[name] as (...args: unknown[]) => unknown;
    owner[name] = function (this: unknown, ...args: unknown[]) {
      onCall(this, args);
      return method.apply(this, args);
    };
    return () => {
      owner[name] = method;
    };
  });
  try {
    await work();
  } finally {
    for (const restore of restored) restore();
  }
}

/** Returns the object of the prototype chain that has the method. */
function ownerOf(object: object, name: string): Record<string, unknown> {
  let owner = object;
  while (!Object.hasOwn(owner, name)) owner = Object.getPrototypeOf(owner);
  return owner as Record<string, unknown>;
}
