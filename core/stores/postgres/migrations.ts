import type { Migration } from "../../database/sql.ts";

/** The changes of the schema, in order. A released migration is never edited: a new one corrects it. */
export const migrations: readonly Migration[] = [
  {
    name: "0001-locks",
    script: `
-- One row for all locks of this database.
CREATE TABLE IF NOT EXISTS lockstep_store (
  id SMALLINT NOT NULL PRIMARY KEY,
  -- Raised after a loss of tokens, so that each new fence is greater than the old ones.
  generation INTEGER NOT NULL,
  CHECK (id = 1)
);

INSERT INTO lockstep_store (id, generation) VALUES (1, 0) ON CONFLICT DO NOTHING;

-- Held locks. Times are microseconds since 1970 by the server's clock.
CREATE TABLE IF NOT EXISTS lockstep_lock (
  name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  owner TEXT COLLATE "C" NOT NULL,
  expires_at BIGINT NOT NULL,
  -- The earliest time for another holder: the expiry plus the lock delay.
  free_at BIGINT NOT NULL
);

-- The last fence of each name, as generation * 2^40 + token. The row outlives the lock: the next fence is counted
-- from it.
CREATE TABLE IF NOT EXISTS lockstep_fence (
  name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  fence BIGINT NOT NULL
);
`,
  },
  {
    name: "0002-inventory",
    script: `
-- The highest fence of each resource. A holder with a lower fence is late.
CREATE TABLE IF NOT EXISTS lockstep_claim (
  resource TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  generation INTEGER NOT NULL,
  token BIGINT NOT NULL
);

-- The checks keep each statement from creating or losing units.
CREATE TABLE IF NOT EXISTS lockstep_stock (
  sku TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  on_hand BIGINT NOT NULL,
  reserved BIGINT NOT NULL,
  sold BIGINT NOT NULL,
  -- The sum of all supplies.
  supplied BIGINT NOT NULL,
  -- The number of the last entry in the ledger.
  seq BIGINT NOT NULL,
  -- The mark of the last transaction that changed the row. Its later statements look for the mark.
  changed_by TEXT COLLATE "C" NOT NULL,
  CHECK (on_hand >= 0),
  CHECK (reserved >= 0),
  CHECK (sold >= 0),
  CHECK (supplied = on_hand + reserved + sold)
);

-- Completed operations, one row per operation id. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_ledger (
  sku TEXT COLLATE "C" NOT NULL,
  -- Counts the sku's entries, in the order of their commits.
  seq BIGINT NOT NULL,
  -- NULL for an expired reservation.
  operation_id TEXT COLLATE "C" UNIQUE,
  payload_hash BYTEA,
  kind TEXT COLLATE "C" NOT NULL,
  quantity BIGINT NOT NULL,
  outcome TEXT COLLATE "C" NOT NULL,
  -- The units on hand after the operation.
  on_hand BIGINT NOT NULL,
  reservation TEXT COLLATE "C",
  generation INTEGER,
  token BIGINT,
  -- Microseconds since 1970 by the server's clock.
  at BIGINT NOT NULL,
  PRIMARY KEY (sku, seq)
);

-- Open reservations. A closed reservation is deleted here and stays in the ledger.
CREATE TABLE IF NOT EXISTS lockstep_reservation (
  -- The id of the operation that made the reservation.
  id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  sku TEXT COLLATE "C" NOT NULL,
  quantity BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  -- Set within the transaction that closes the reservation.
  closed_by TEXT COLLATE "C"
);

CREATE INDEX IF NOT EXISTS lockstep_reservation_expiry ON lockstep_reservation (sku, expires_at);
`,
  },
  {
    name: "0003-steps",
    script: `
-- Runs of workflows. Times are microseconds since 1970 by the server's clock.
CREATE TABLE IF NOT EXISTS lockstep_run (
  run_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  workflow TEXT COLLATE "C" NOT NULL,
  version INTEGER NOT NULL,
  input TEXT NOT NULL,
  input_hash TEXT COLLATE "C" NOT NULL,
  -- The parent run, and the name of the signal that it receives when this run ends.
  parent_run TEXT COLLATE "C",
  parent_signal TEXT COLLATE "C",
  -- Of a fork: the run whose results it uses, and the key of the first step of its own.
  origin_run TEXT COLLATE "C",
  origin_step TEXT COLLATE "C",
  -- 1 if the run goes on when its parent fails or is cancelled.
  detached SMALLINT NOT NULL DEFAULT 0,
  -- The run's place among due runs. An empty key stands for none.
  queue TEXT COLLATE "C" NOT NULL DEFAULT 'default',
  turn_key TEXT COLLATE "C" NOT NULL DEFAULT '',
  priority INTEGER NOT NULL DEFAULT 0,
  status TEXT COLLATE "C" NOT NULL,
  -- Raised by each claim: writes with a lower epoch are refused. The first epoch is the time in nanoseconds, so
  -- that a new run never has an epoch of a purged run with the same id.
  epoch BIGINT NOT NULL,
  owner TEXT COLLATE "C" NOT NULL,
  -- The mark of the call that claimed the run last. The call repeats it after a lost answer.
  claimed_by TEXT COLLATE "C" NOT NULL,
  -- The mark of the call that reopened the run last.
  reopened_by TEXT COLLATE "C",
  -- The earliest next claim: the end of a running run's lease, or the wake-up of a parked run. NULL for an ended
  -- run, and for a run that waits for a signal alone.
  due_at BIGINT,
  -- The reason of a parked run.
  reason TEXT COLLATE "C",
  -- The lock that a parked run waits for.
  waits_for TEXT COLLATE "C",
  crashes INTEGER NOT NULL,
  -- Counts the run's histories: ctx.continueAsNew begins the next one.
  part INTEGER NOT NULL DEFAULT 1,
  -- How many times in a row no process could execute the run.
  blocks INTEGER NOT NULL DEFAULT 0,
  -- 1 after the request, 2 after the next claim.
  cancelled SMALLINT NOT NULL,
  -- The number of the last signal.
  signals BIGINT NOT NULL,
  -- The number of the last signal that is not the end of a child.
  last_sent BIGINT NOT NULL DEFAULT 0,
  -- Of a run that is parked for children: the number of the signal that makes it due at once, and the microseconds
  -- from the first end of a child until it is due.
  wake_signal BIGINT,
  wake_within BIGINT,
  -- The output of a completed run, or the error of another one.
  value TEXT,
  -- yes, no or unclear. NULL for a completed run.
  compensated TEXT COLLATE "C",
  started_at BIGINT NOT NULL,
  -- The time of the last claim, park or end.
  changed_at BIGINT NOT NULL,
  -- The time from which an ended run counts as deleted.
  expires_at BIGINT
);

CREATE INDEX IF NOT EXISTS lockstep_run_due ON lockstep_run (queue, workflow, version, due_at);

CREATE INDEX IF NOT EXISTS lockstep_run_line ON lockstep_run (queue, workflow, version, priority, turn_key, due_at);

CREATE INDEX IF NOT EXISTS lockstep_run_started ON lockstep_run (started_at);

CREATE INDEX IF NOT EXISTS lockstep_run_workflow ON lockstep_run (workflow, started_at);

CREATE INDEX IF NOT EXISTS lockstep_run_status ON lockstep_run (status, started_at);

CREATE INDEX IF NOT EXISTS lockstep_run_running ON lockstep_run (queue, status, turn_key);

CREATE INDEX IF NOT EXISTS lockstep_run_waiting ON lockstep_run (waits_for, started_at);

CREATE INDEX IF NOT EXISTS lockstep_run_key ON lockstep_run (turn_key, started_at);

CREATE INDEX IF NOT EXISTS lockstep_run_parent ON lockstep_run (parent_run, due_at);

CREATE INDEX IF NOT EXISTS lockstep_run_origin ON lockstep_run (origin_run, started_at);

CREATE INDEX IF NOT EXISTS lockstep_run_expires ON lockstep_run (expires_at);

-- The limits of queues, over all workers. A claim from a limited queue locks its row.
CREATE TABLE IF NOT EXISTS lockstep_queue (
  queue TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  -- The most executed runs, of the queue and of one key.
  concurrency BIGINT,
  per_key BIGINT,
  -- The most claims in a span of microseconds.
  rate_runs BIGINT,
  rate_span BIGINT,
  -- The same for each key.
  key_rate_runs BIGINT,
  key_rate_span BIGINT,
  -- The time until which claims have used the rate.
  next_at BIGINT NOT NULL
);

-- The time until which claims have used the rate of a key. A claim locks the queue's row first.
CREATE TABLE IF NOT EXISTS lockstep_key_rate (
  queue TEXT COLLATE "C" NOT NULL,
  turn_key TEXT COLLATE "C" NOT NULL,
  next_at BIGINT NOT NULL,
  PRIMARY KEY (queue, turn_key)
);

CREATE INDEX IF NOT EXISTS lockstep_key_rate_next ON lockstep_key_rate (next_at);

-- The backlogs of runs by priority and key, so that a claim finds the keys behind a long backlog of one key.
CREATE TABLE IF NOT EXISTS lockstep_backlog (
  queue TEXT COLLATE "C" NOT NULL,
  workflow TEXT COLLATE "C" NOT NULL,
  version INTEGER NOT NULL,
  -- The priority with its sign changed: the primary key is in the order of turns.
  level INTEGER NOT NULL,
  turn_key TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (queue, workflow, version, level, turn_key)
);

-- The records of runs, one row per history and key. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_step (
  run_id TEXT COLLATE "C" NOT NULL,
  -- The history that the record belongs to.
  part INTEGER NOT NULL,
  step_key TEXT COLLATE "C" NOT NULL,
  -- An insert computes NULL here for a holder that has lost the run, and fails.
  epoch BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  outcome TEXT COLLATE "C" NOT NULL,
  attempt INTEGER NOT NULL,
  value TEXT,
  -- Of a large value, which stands in lockstep_value.
  value_id TEXT COLLATE "C",
  value_bytes BIGINT,
  args_hash TEXT COLLATE "C",
  fence TEXT,
  -- In microseconds.
  took BIGINT,
  waited BIGINT,
  -- Greater than in all earlier records of the run.
  at BIGINT NOT NULL,
  -- In the order in which a history is read.
  PRIMARY KEY (run_id, part, at, step_key)
);

CREATE UNIQUE INDEX IF NOT EXISTS lockstep_step_once ON lockstep_step (run_id, part, step_key);

-- Large values of records, in chunks.
CREATE TABLE IF NOT EXISTS lockstep_value (
  run_id TEXT COLLATE "C" NOT NULL,
  part INTEGER NOT NULL,
  value_id TEXT COLLATE "C" NOT NULL,
  chunk INTEGER NOT NULL,
  data BYTEA NOT NULL,
  PRIMARY KEY (run_id, part, value_id, chunk)
);

-- All signals of runs.
CREATE TABLE IF NOT EXISTS lockstep_signal (
  run_id TEXT COLLATE "C" NOT NULL,
  -- Counts the run's signals, in the order of their commits.
  seq BIGINT NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  dedupe_id TEXT COLLATE "C" NOT NULL,
  payload TEXT NOT NULL,
  at BIGINT NOT NULL,
  -- The history that has received the signal. NULL: the current one, or none yet.
  part INTEGER,
  PRIMARY KEY (run_id, seq)
);

CREATE UNIQUE INDEX IF NOT EXISTS lockstep_signal_once ON lockstep_signal (run_id, name, dedupe_id);
`,
  },
  {
    name: "0004-claim-owners",
    script: `
-- The owner of the claim's fence, as the lock's store names its holder: a store that loses its last writes may issue
-- the same token twice. NULL for claims from before this migration.
ALTER TABLE lockstep_claim ADD COLUMN owner TEXT COLLATE "C";
`,
  },
  {
    name: "0005-orders",
    script: `
-- Orders for 'lockstep orders fulfil', with their answers.
CREATE TABLE IF NOT EXISTS lockstep_order (
  -- In the order of their arrival.
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- Also the operation id of the sale.
  order_id TEXT COLLATE "C" NOT NULL,
  sku TEXT COLLATE "C" NOT NULL,
  quantity BIGINT NOT NULL,
  -- NULL for an open order.
  answer TEXT COLLATE "C",
  placed_at BIGINT NOT NULL,
  answered_at BIGINT
);

CREATE UNIQUE INDEX IF NOT EXISTS lockstep_order_once ON lockstep_order (order_id);

CREATE INDEX IF NOT EXISTS lockstep_order_open ON lockstep_order (answer, sku, seq);
`,
  },
  {
    name: "0006-entities",
    script: `
-- Entities: one row per key. Times are microseconds since 1970 by the server's clock.
CREATE TABLE IF NOT EXISTS lockstep_entity (
  entity TEXT COLLATE "C" NOT NULL,
  entity_key TEXT COLLATE "C" NOT NULL,
  -- NULL before the first commit.
  state TEXT,
  -- Raised by each claim, and never reset: commits with a lower fence are refused.
  fence BIGINT NOT NULL,
  -- The mark of the call that claimed the entity last. The call repeats it after a lost answer.
  claimed_by TEXT COLLATE "C" NOT NULL,
  -- The end of the claim's lease. 0 for a released claim.
  held_until BIGINT NOT NULL,
  -- Counts the visits: the order of the messages.
  seq BIGINT NOT NULL,
  PRIMARY KEY (entity, entity_key)
);

-- Messages that wait for their handlers.
CREATE TABLE IF NOT EXISTS lockstep_message (
  entity TEXT COLLATE "C" NOT NULL,
  entity_key TEXT COLLATE "C" NOT NULL,
  operation_id TEXT COLLATE "C" NOT NULL,
  seq BIGINT NOT NULL,
  handler TEXT COLLATE "C" NOT NULL,
  input TEXT NOT NULL,
  input_hash TEXT COLLATE "C" NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (entity, entity_key, operation_id)
);

CREATE INDEX IF NOT EXISTS lockstep_message_seq ON lockstep_message (entity, entity_key, seq);

-- Answers to messages, one row per operation id. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_answer (
  entity TEXT COLLATE "C" NOT NULL,
  entity_key TEXT COLLATE "C" NOT NULL,
  operation_id TEXT COLLATE "C" NOT NULL,
  input_hash TEXT COLLATE "C" NOT NULL,
  outcome TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL,
  -- An insert computes NULL here for a claim that was lost, and fails.
  fence BIGINT NOT NULL,
  at BIGINT NOT NULL,
  expires_at BIGINT,
  PRIMARY KEY (entity, entity_key, operation_id)
);

CREATE INDEX IF NOT EXISTS lockstep_answer_expires ON lockstep_answer (expires_at);
`,
  },
  {
    name: "0007-starts",
    script: `
-- The last run of each workflow and start key: for singletons and debounced starts.
CREATE TABLE IF NOT EXISTS lockstep_start (
  workflow TEXT COLLATE "C" NOT NULL,
  start_key TEXT COLLATE "C" NOT NULL,
  run_id TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (workflow, start_key)
);

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
ALTER TABLE lockstep_entity ADD COLUMN waits_since BIGINT NOT NULL DEFAULT 0;

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
ALTER TABLE lockstep_run ADD COLUMN taken_over SMALLINT NOT NULL DEFAULT 0;
`,
  },
  {
    name: "0011-awaited-locks",
    script: `
-- 1 if a waiter listens: the release is published.
ALTER TABLE lockstep_lock ADD COLUMN awaited SMALLINT NOT NULL DEFAULT 0;
`,
  },
  {
    name: "0012-lock-functions",
    script: `
-- Takes a lock that is free, expired or the owner's, for lock_span and wait_span microseconds from now, and counts its fence. NULL:
-- another owner has the lock. A session keeps the plans of a function, which plain statements need anew each time.
CREATE OR REPLACE FUNCTION lockstep_take(lock_name TEXT, lock_owner TEXT, lock_span BIGINT, wait_span BIGINT)
RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
  time_now BIGINT := CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT);
  new_fence BIGINT;
BEGIN
  INSERT INTO lockstep_lock AS l (name, owner, expires_at, free_at)
  VALUES (lock_name, lock_owner, time_now + lock_span, time_now + wait_span)
  ON CONFLICT (name) DO UPDATE SET
    owner = excluded.owner,
    expires_at = GREATEST(l.expires_at, excluded.expires_at),
    free_at = GREATEST(l.free_at, excluded.free_at)
  WHERE l.free_at <= time_now OR l.owner = lock_owner;
  IF NOT FOUND THEN RETURN NULL; END IF;
  INSERT INTO lockstep_fence AS f (name, fence)
  SELECT lock_name, s.generation * 1099511627776 + 1 FROM lockstep_store AS s FOR SHARE
  ON CONFLICT (name) DO UPDATE SET fence = GREATEST(f.fence + 1, excluded.fence)
  RETURNING f.fence INTO new_fence;
  RETURN new_fence;
END;
$$;

-- Releases a lock that the owner holds, and publishes the release if a waiter listens. False: another owner's, or expired.
-- A plan is kept while its table grows: one that scans the table, right for a few rows, would be slow for many. So functions that
-- read by a key use its index at any size.
CREATE OR REPLACE FUNCTION lockstep_drop(lock_name TEXT, lock_owner TEXT)
RETURNS BOOLEAN LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  was_awaited SMALLINT;
BEGIN
  DELETE FROM lockstep_lock
  WHERE name = lock_name AND owner = lock_owner
    AND expires_at > CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
  RETURNING awaited INTO was_awaited;
  IF NOT FOUND THEN RETURN FALSE; END IF;
  IF was_awaited = 1 THEN PERFORM pg_notify('lockstep_released', lock_name); END IF;
  RETURN TRUE;
END;
$$;
`,
  },
  {
    name: "0013-runs-of-queues",
    script: `
-- Lists of one queue's runs read the latest ones from the index.
CREATE INDEX IF NOT EXISTS lockstep_run_queue ON lockstep_run (queue, started_at);
`,
  },
  {
    name: "0014-functions",
    script: `
-- Sells units if they suffice, the operation id is new and the fence holds its claim, and records the sale. Answers with the units on
-- hand. NULL: nothing was changed.
CREATE OR REPLACE FUNCTION lockstep_decrement(
  of_sku TEXT, units BIGINT, operation TEXT, hash BYTEA, of_resource TEXT, of_generation INTEGER, of_token BIGINT, of_owner TEXT)
RETURNS BIGINT LANGUAGE plpgsql SET enable_seqscan = off AS $$
-- A name is that of an argument, also where the user has added a column of this name.
#variable_conflict use_variable
DECLARE
  stock RECORD;
BEGIN
  UPDATE lockstep_stock SET on_hand = on_hand - units, sold = sold + units, seq = seq + 1
  WHERE sku = of_sku AND on_hand >= units
    AND (of_resource IS NULL OR EXISTS (
      SELECT 1 FROM lockstep_claim
      WHERE resource = of_resource AND generation = of_generation AND token = of_token
        AND (owner = of_owner OR owner IS NULL)
      FOR SHARE))
    AND NOT EXISTS (SELECT 1 FROM lockstep_ledger WHERE operation_id = operation)
  RETURNING on_hand, seq INTO stock;
  IF NOT FOUND THEN RETURN NULL; END IF;
  INSERT INTO lockstep_ledger (
    sku, seq, operation_id, payload_hash, kind, quantity, outcome, on_hand, generation, token, at)
  VALUES (
    of_sku, stock.seq, operation, hash, 'decrement', units, 'applied', stock.on_hand, of_generation, of_token,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT));
  RETURN stock.on_hand;
END;
$$;

-- Raises the resource's claim to this fence, unless the claim is higher, or equal and of another owner. Answers with the claim.
CREATE OR REPLACE FUNCTION lockstep_claim_fence(
  of_resource TEXT, of_generation INTEGER, of_token BIGINT, of_owner TEXT,
  OUT generation INTEGER, OUT token BIGINT, OUT owner TEXT)
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lockstep_claim AS c (resource, generation, token, owner)
  VALUES (of_resource, of_generation, of_token, of_owner)
  ON CONFLICT (resource) DO UPDATE SET
    generation = CASE WHEN (c.generation, c.token) < (of_generation, of_token) THEN of_generation ELSE c.generation END,
    token = CASE WHEN (c.generation, c.token) < (of_generation, of_token) THEN of_token ELSE c.token END,
    owner = CASE
      WHEN (c.generation, c.token) < (of_generation, of_token) THEN of_owner
      WHEN (c.generation, c.token) = (of_generation, of_token) THEN COALESCE(c.owner, of_owner)
      ELSE c.owner END
  RETURNING c.generation, c.token, c.owner INTO generation, token, owner;
END;
$$;

-- Inserts a record of a run, and answers with its time, which is later than that of the run's last record. NULL for last_at: the last
-- record is read. Fails for a holder that has lost the run: the columns epoch and part refuse NULL.
CREATE OR REPLACE FUNCTION lockstep_append(
  of_run TEXT, of_epoch BIGINT, last_at BIGINT, key TEXT, kind TEXT, outcome TEXT, attempt INTEGER, value TEXT,
  value_id TEXT, value_bytes BIGINT, args_hash TEXT, fence TEXT, took BIGINT, waited BIGINT)
RETURNS BIGINT LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  time_now BIGINT := CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT);
  run RECORD;
BEGIN
  SELECT r.part, r.epoch INTO run FROM lockstep_run AS r
  WHERE r.run_id = of_run AND r.epoch = of_epoch AND r.status = 'running' FOR SHARE;
  IF last_at IS NULL THEN
    SELECT COALESCE(MAX(s.at), 0) INTO last_at FROM lockstep_step AS s
    WHERE s.run_id = of_run AND s.part = run.part;
  END IF;
  time_now := GREATEST(time_now, last_at + 1);
  INSERT INTO lockstep_step (
    run_id, part, step_key, epoch, kind, outcome, attempt, value, value_id, value_bytes, args_hash, fence, took, waited, at)
  VALUES (
    of_run, run.part, key, run.epoch, kind, outcome, attempt, value, value_id, value_bytes, args_hash, fence, took, waited,
    time_now);
  RETURN time_now;
END;
$$;

-- Reads the run's state, with the record of this key if it exists.
CREATE OR REPLACE FUNCTION lockstep_read_state(of_run TEXT, of_key TEXT)
RETURNS TABLE (
  run_epoch BIGINT, status TEXT, step_key TEXT, epoch BIGINT, kind TEXT, outcome TEXT, attempt INTEGER, value TEXT,
  value_bytes BIGINT, args_hash TEXT, fence TEXT, took BIGINT, waited BIGINT, part INTEGER, at BIGINT)
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  RETURN QUERY
  SELECT r.epoch, r.status, s.step_key, s.epoch, s.kind, s.outcome, s.attempt, s.value, s.value_bytes, s.args_hash, s.fence,
    s.took, s.waited, s.part, s.at
  FROM lockstep_run AS r
  LEFT JOIN lockstep_step AS s ON s.run_id = r.run_id AND s.part = r.part AND s.step_key = of_key
  WHERE r.run_id = of_run;
END;
$$;
`,
  },
];
