import type { Migration } from "../../database/sql.ts";

/** The changes of the schema, in order. A released migration is never edited: a new one corrects it. */
export const migrations: readonly Migration[] = [
  {
    name: "0001-locks",
    script: `
-- One row for all locks of this database.
CREATE TABLE IF NOT EXISTS lockstep_store (
  id INTEGER NOT NULL PRIMARY KEY,
  -- Raised after a loss of tokens, so that each new fence is greater than the old ones.
  generation INTEGER NOT NULL,
  CHECK (id = 1)
) STRICT;

INSERT OR IGNORE INTO lockstep_store (id, generation) VALUES (1, 0);

-- Held locks. Times are microseconds since 1970 by the machine's clock.
CREATE TABLE IF NOT EXISTS lockstep_lock (
  name TEXT NOT NULL PRIMARY KEY,
  owner TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  -- The earliest time for another holder: the expiry plus the lock delay.
  free_at INTEGER NOT NULL
) STRICT;

-- The last fence of each name, as generation * 2^40 + token. The row outlives the lock: the next fence is counted
-- from it.
CREATE TABLE IF NOT EXISTS lockstep_fence (
  name TEXT NOT NULL PRIMARY KEY,
  fence INTEGER NOT NULL
) STRICT;
`,
  },
  {
    name: "0002-inventory",
    script: `
-- The highest fence of each resource. A holder with a lower fence is late.
CREATE TABLE IF NOT EXISTS lockstep_claim (
  resource TEXT NOT NULL PRIMARY KEY,
  generation INTEGER NOT NULL,
  token INTEGER NOT NULL
) STRICT;

-- The checks keep each statement from creating or losing units.
CREATE TABLE IF NOT EXISTS lockstep_stock (
  sku TEXT NOT NULL PRIMARY KEY,
  on_hand INTEGER NOT NULL,
  reserved INTEGER NOT NULL,
  sold INTEGER NOT NULL,
  -- The sum of all supplies.
  supplied INTEGER NOT NULL,
  -- The number of the last entry in the ledger.
  seq INTEGER NOT NULL,
  -- The mark of the last transaction that changed the row. Its later statements look for the mark.
  changed_by TEXT NOT NULL,
  CHECK (on_hand >= 0),
  CHECK (reserved >= 0),
  CHECK (sold >= 0),
  CHECK (supplied = on_hand + reserved + sold)
) STRICT;

-- Completed operations, one row per operation id. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_ledger (
  sku TEXT NOT NULL,
  -- Counts the sku's entries, in the order of their commits.
  seq INTEGER NOT NULL,
  -- NULL for an expired reservation.
  operation_id TEXT UNIQUE,
  payload_hash BLOB,
  kind TEXT NOT NULL,
  quantity INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  -- The units on hand after the operation.
  on_hand INTEGER NOT NULL,
  reservation TEXT,
  generation INTEGER,
  token INTEGER,
  -- Microseconds since 1970 by the machine's clock.
  at INTEGER NOT NULL,
  PRIMARY KEY (sku, seq)
) STRICT, WITHOUT ROWID;

-- Open reservations. A closed reservation is deleted here and stays in the ledger.
CREATE TABLE IF NOT EXISTS lockstep_reservation (
  -- The id of the operation that made the reservation.
  id TEXT NOT NULL PRIMARY KEY,
  sku TEXT NOT NULL,
  quantity INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  -- Set within the transaction that closes the reservation.
  closed_by TEXT
) STRICT;

CREATE INDEX IF NOT EXISTS lockstep_reservation_sku ON lockstep_reservation (sku, expires_at);
`,
  },
  {
    name: "0003-steps",
    script: `
-- Runs of workflows. Times are microseconds since 1970 by the machine's clock.
CREATE TABLE IF NOT EXISTS lockstep_run (
  run_id TEXT NOT NULL PRIMARY KEY,
  workflow TEXT NOT NULL,
  version INTEGER NOT NULL,
  input TEXT NOT NULL,
  input_hash TEXT NOT NULL,
  -- The parent run, and the name of the signal that it receives when this run ends.
  parent_run TEXT,
  parent_signal TEXT,
  -- Of a fork: the run whose results it uses, and the key of the first step of its own.
  origin_run TEXT,
  origin_step TEXT,
  -- 1 if the run goes on when its parent fails or is cancelled.
  detached INTEGER NOT NULL DEFAULT 0,
  -- The run's place among due runs. An empty key stands for none.
  queue TEXT NOT NULL DEFAULT 'default',
  turn_key TEXT NOT NULL DEFAULT '',
  priority INTEGER NOT NULL DEFAULT 0,
  status TEXT NOT NULL,
  -- Raised by each claim: writes with a lower epoch are refused. The first epoch is the time in nanoseconds, so
  -- that a new run never has an epoch of a purged run with the same id.
  epoch INTEGER NOT NULL,
  owner TEXT NOT NULL,
  -- The mark of the call that claimed the run last. The call repeats it after a lost answer.
  claimed_by TEXT NOT NULL,
  -- The mark of the call that reopened the run last.
  reopened_by TEXT,
  -- The earliest next claim: the end of a running run's lease, or the wake-up of a parked run. NULL for an ended
  -- run, and for a run that waits for a signal alone.
  due_at INTEGER,
  -- The reason of a parked run.
  reason TEXT,
  -- The lock that a parked run waits for.
  waits_for TEXT,
  crashes INTEGER NOT NULL,
  -- Counts the run's histories: ctx.continueAsNew begins the next one.
  part INTEGER NOT NULL DEFAULT 1,
  -- How many times in a row no process could execute the run.
  blocks INTEGER NOT NULL DEFAULT 0,
  -- 1 after the request, 2 after the next claim.
  cancelled INTEGER NOT NULL,
  -- The number of the last signal.
  signals INTEGER NOT NULL,
  -- The number of the last signal that is not the end of a child.
  last_sent INTEGER NOT NULL DEFAULT 0,
  -- Of a run that is parked for children: the number of the signal that makes it due at once, and the microseconds
  -- from the first end of a child until it is due.
  wake_signal INTEGER,
  wake_within INTEGER,
  -- The output of a completed run, or the error of another one.
  value TEXT,
  -- yes, no or unclear. NULL for a completed run.
  compensated TEXT,
  started_at INTEGER NOT NULL,
  -- The time of the last claim, park or end.
  changed_at INTEGER NOT NULL,
  -- The time from which an ended run counts as deleted.
  expires_at INTEGER
) STRICT;

CREATE INDEX IF NOT EXISTS lockstep_run_due ON lockstep_run (queue, workflow, version, due_at);
CREATE INDEX IF NOT EXISTS lockstep_run_line
  ON lockstep_run (queue, workflow, version, priority, turn_key, due_at);
CREATE INDEX IF NOT EXISTS lockstep_run_started ON lockstep_run (started_at);
CREATE INDEX IF NOT EXISTS lockstep_run_workflow ON lockstep_run (workflow, started_at);
CREATE INDEX IF NOT EXISTS lockstep_run_status ON lockstep_run (status, started_at);
CREATE INDEX IF NOT EXISTS lockstep_run_running ON lockstep_run (queue, status, turn_key);
CREATE INDEX IF NOT EXISTS lockstep_run_waiting ON lockstep_run (waits_for, started_at)
  WHERE waits_for IS NOT NULL;
CREATE INDEX IF NOT EXISTS lockstep_run_key ON lockstep_run (turn_key, started_at);
CREATE INDEX IF NOT EXISTS lockstep_run_parent ON lockstep_run (parent_run, due_at);
CREATE INDEX IF NOT EXISTS lockstep_run_origin ON lockstep_run (origin_run, started_at)
  WHERE origin_run IS NOT NULL;
CREATE INDEX IF NOT EXISTS lockstep_run_expires ON lockstep_run (expires_at);

-- The limits of queues, over all workers. A claim from a limited queue locks its row.
CREATE TABLE IF NOT EXISTS lockstep_queue (
  queue TEXT NOT NULL PRIMARY KEY,
  -- The most executed runs, of the queue and of one key.
  concurrency INTEGER,
  per_key INTEGER,
  -- The most claims in a span of microseconds.
  rate_runs INTEGER,
  rate_span INTEGER,
  -- The same for each key.
  key_rate_runs INTEGER,
  key_rate_span INTEGER,
  -- The time until which claims have used the rate.
  next_at INTEGER NOT NULL
) STRICT;

-- The time until which claims have used the rate of a key. A claim locks the queue's row first.
CREATE TABLE IF NOT EXISTS lockstep_key_rate (
  queue TEXT NOT NULL,
  turn_key TEXT NOT NULL,
  next_at INTEGER NOT NULL,
  PRIMARY KEY (queue, turn_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lockstep_key_rate_next ON lockstep_key_rate (next_at);

-- The backlogs of runs by priority and key, so that a claim finds the keys behind a long backlog of one key.
CREATE TABLE IF NOT EXISTS lockstep_backlog (
  queue TEXT NOT NULL,
  workflow TEXT NOT NULL,
  version INTEGER NOT NULL,
  -- The priority with its sign changed: the primary key is in the order of turns.
  level INTEGER NOT NULL,
  turn_key TEXT NOT NULL,
  PRIMARY KEY (queue, workflow, version, level, turn_key)
) STRICT, WITHOUT ROWID;

-- The records of runs, one row per history and key. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_step (
  run_id TEXT NOT NULL,
  -- The history that the record belongs to.
  part INTEGER NOT NULL,
  step_key TEXT NOT NULL,
  -- An insert computes NULL here for a holder that has lost the run, and fails.
  epoch INTEGER NOT NULL,
  kind TEXT NOT NULL,
  outcome TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  value TEXT,
  -- Of a large value, which stands in lockstep_value.
  value_id TEXT,
  value_bytes INTEGER,
  args_hash TEXT,
  fence TEXT,
  -- In microseconds.
  took INTEGER,
  waited INTEGER,
  -- Greater than in all earlier records of the run.
  at INTEGER NOT NULL,
  -- In the order in which a history is read.
  PRIMARY KEY (run_id, part, at, step_key),
  UNIQUE (run_id, part, step_key)
) STRICT;

-- Large values of records, in chunks.
CREATE TABLE IF NOT EXISTS lockstep_value (
  run_id TEXT NOT NULL,
  part INTEGER NOT NULL,
  value_id TEXT NOT NULL,
  chunk INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (run_id, part, value_id, chunk)
) STRICT;

-- All signals of runs.
CREATE TABLE IF NOT EXISTS lockstep_signal (
  run_id TEXT NOT NULL,
  -- Counts the run's signals, in the order of their commits.
  seq INTEGER NOT NULL,
  name TEXT NOT NULL,
  dedupe_id TEXT NOT NULL,
  payload TEXT NOT NULL,
  at INTEGER NOT NULL,
  -- The history that has received the signal. NULL: the current one, or none yet.
  part INTEGER,
  PRIMARY KEY (run_id, seq),
  UNIQUE (run_id, name, dedupe_id)
) STRICT;
`,
  },
  {
    name: "0004-claim-owners",
    script: `
-- The owner of the claim's fence, as the lock's store names its holder: a store that loses its last writes may issue
-- the same token twice. NULL for claims from before this migration.
ALTER TABLE lockstep_claim ADD COLUMN owner TEXT;
`,
  },
  {
    name: "0005-orders",
    script: `
-- Orders for 'lockstep orders fulfil', with their answers.
CREATE TABLE IF NOT EXISTS lockstep_order (
  -- In the order of their arrival.
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  -- Also the operation id of the sale.
  order_id TEXT NOT NULL UNIQUE,
  sku TEXT NOT NULL,
  quantity INTEGER NOT NULL,
  -- NULL for an open order.
  answer TEXT,
  placed_at INTEGER NOT NULL,
  answered_at INTEGER
) STRICT;

CREATE INDEX IF NOT EXISTS lockstep_order_open ON lockstep_order (answer, sku, seq);
`,
  },
  {
    name: "0006-entities",
    script: `
-- Entities: one row per key. Times are microseconds since 1970 by the machine's clock.
CREATE TABLE IF NOT EXISTS lockstep_entity (
  entity TEXT NOT NULL,
  entity_key TEXT NOT NULL,
  -- NULL before the first commit.
  state TEXT,
  -- Raised by each claim, and never reset: commits with a lower fence are refused.
  fence INTEGER NOT NULL,
  -- The mark of the call that claimed the entity last. The call repeats it after a lost answer.
  claimed_by TEXT NOT NULL,
  -- The end of the claim's lease. 0 for a released claim.
  held_until INTEGER NOT NULL,
  -- Counts the visits: the order of the messages.
  seq INTEGER NOT NULL,
  PRIMARY KEY (entity, entity_key)
) STRICT;

-- Messages that wait for their handlers.
CREATE TABLE IF NOT EXISTS lockstep_message (
  entity TEXT NOT NULL,
  entity_key TEXT NOT NULL,
  operation_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  handler TEXT NOT NULL,
  input TEXT NOT NULL,
  input_hash TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (entity, entity_key, operation_id)
) STRICT;

CREATE INDEX IF NOT EXISTS lockstep_message_seq ON lockstep_message (entity, entity_key, seq);

-- Answers to messages, one row per operation id. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_answer (
  entity TEXT NOT NULL,
  entity_key TEXT NOT NULL,
  operation_id TEXT NOT NULL,
  input_hash TEXT NOT NULL,
  outcome TEXT NOT NULL,
  value TEXT NOT NULL,
  -- An insert computes NULL here for a claim that was lost, and fails.
  fence INTEGER NOT NULL,
  at INTEGER NOT NULL,
  expires_at INTEGER,
  PRIMARY KEY (entity, entity_key, operation_id)
) STRICT;

CREATE INDEX IF NOT EXISTS lockstep_answer_expires ON lockstep_answer (expires_at);
`,
  },
  {
    name: "0007-starts",
    script: `
-- The last run of each workflow and start key: for singletons and debounced starts.
CREATE TABLE IF NOT EXISTS lockstep_start (
  workflow TEXT NOT NULL,
  start_key TEXT NOT NULL,
  run_id TEXT NOT NULL,
  PRIMARY KEY (workflow, start_key)
) STRICT;

CREATE INDEX IF NOT EXISTS lockstep_start_run ON lockstep_start (run_id);
`,
  },
  {
    name: "0008-steps-in-progress",
    script: `
-- The steps of a running run that its holder had in progress for long at its last renewal, as JSON.
ALTER TABLE lockstep_run ADD COLUMN in_progress TEXT;
`,
  },
  {
    name: "0009-waiting-entities",
    script: `
-- Since when the oldest message of the entity waits. 0 without one. Polls read the longest waiting entities from the index.
ALTER TABLE lockstep_entity ADD COLUMN waits_since INTEGER NOT NULL DEFAULT 0;

UPDATE lockstep_entity SET waits_since = COALESCE((
  SELECT MIN(m.at) FROM lockstep_message AS m
  WHERE m.entity = lockstep_entity.entity AND m.entity_key = lockstep_entity.entity_key), 0);

CREATE INDEX IF NOT EXISTS lockstep_entity_waits ON lockstep_entity (entity, waits_since);
`,
  },
  {
    name: "0010-takeovers",
    script: `
-- 1 if the lease of the holder before the last claim had expired.
ALTER TABLE lockstep_run ADD COLUMN taken_over INTEGER NOT NULL DEFAULT 0;
`,
  },
  // A column of PostgreSQL alone. A number means the same migration in every database.
  { name: "0011-awaited-locks", script: "" },
  // Functions of PostgreSQL alone.
  { name: "0012-lock-functions", script: "" },
  {
    name: "0013-runs-of-queues",
    script: `
-- Lists of one queue's runs read the latest ones from the index.
CREATE INDEX IF NOT EXISTS lockstep_run_queue ON lockstep_run (queue, started_at);
`,
  },
  // Functions of PostgreSQL alone.
  { name: "0014-functions", script: "" },
];
