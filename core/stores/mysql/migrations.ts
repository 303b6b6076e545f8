import type { Migration } from "../../database/sql.ts";

/** The changes of the schema, in order. A released migration is never edited: a new one corrects it. */
export const migrations: readonly Migration[] = [
  {
    name: "0001-locks",
    script: `
-- One row for all locks of this database.
CREATE TABLE IF NOT EXISTS lockstep_store (
  id TINYINT UNSIGNED NOT NULL PRIMARY KEY,
  -- Raised after a loss of tokens, so that each new fence is greater than the old ones.
  generation INT UNSIGNED NOT NULL,
  CHECK (id = 1)
) ENGINE = InnoDB;

INSERT IGNORE INTO lockstep_store (id, generation) VALUES (1, 0);

-- Held locks. Times are microseconds since 1970 by the server's clock.
CREATE TABLE IF NOT EXISTS lockstep_lock (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  owner VARBINARY(255) NOT NULL,
  expires_at BIGINT NOT NULL,
  -- The earliest time for another holder: the expiry plus the lock delay.
  free_at BIGINT NOT NULL
) ENGINE = InnoDB;

-- The last fence of each name, as generation * 2^40 + token. The row outlives the lock: the next fence is counted
-- from it.
CREATE TABLE IF NOT EXISTS lockstep_fence (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  fence BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB;
`,
  },
  {
    name: "0002-inventory",
    script: `
-- The highest fence of each resource. A holder with a lower fence is late.
CREATE TABLE IF NOT EXISTS lockstep_claim (
  resource VARBINARY(512) NOT NULL PRIMARY KEY,
  generation INT UNSIGNED NOT NULL,
  token BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB;

-- The checks keep each statement from creating or losing units.
CREATE TABLE IF NOT EXISTS lockstep_stock (
  sku VARBINARY(255) NOT NULL PRIMARY KEY,
  on_hand BIGINT NOT NULL,
  reserved BIGINT NOT NULL,
  sold BIGINT NOT NULL,
  -- The sum of all supplies.
  supplied BIGINT NOT NULL,
  -- The number of the last entry in the ledger.
  seq BIGINT UNSIGNED NOT NULL,
  -- The mark of the last transaction that changed the row. Its later statements look for the mark.
  changed_by VARBINARY(36) NOT NULL,
  CHECK (on_hand >= 0),
  CHECK (reserved >= 0),
  CHECK (sold >= 0),
  CHECK (supplied = on_hand + reserved + sold)
) ENGINE = InnoDB;

-- Completed operations, one row per operation id. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_ledger (
  sku VARBINARY(255) NOT NULL,
  -- Counts the sku's entries, in the order of their commits.
  seq BIGINT UNSIGNED NOT NULL,
  -- NULL for an expired reservation.
  operation_id VARBINARY(255) UNIQUE,
  payload_hash BINARY(32),
  kind VARBINARY(16) NOT NULL,
  quantity BIGINT NOT NULL,
  outcome VARBINARY(16) NOT NULL,
  -- The units on hand after the operation.
  on_hand BIGINT NOT NULL,
  reservation VARBINARY(255),
  generation INT UNSIGNED,
  token BIGINT UNSIGNED,
  -- Microseconds since 1970 by the server's clock.
  at BIGINT NOT NULL,
  PRIMARY KEY (sku, seq)
) ENGINE = InnoDB;

-- Open reservations. A closed reservation is deleted here and stays in the ledger.
CREATE TABLE IF NOT EXISTS lockstep_reservation (
  -- The id of the operation that made the reservation.
  id VARBINARY(255) NOT NULL PRIMARY KEY,
  sku VARBINARY(255) NOT NULL,
  quantity BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  -- Set within the transaction that closes the reservation.
  closed_by VARBINARY(255),
  KEY (sku, expires_at)
) ENGINE = InnoDB;
`,
  },
  {
    name: "0003-steps",
    script: `
-- Runs of workflows. Times are microseconds since 1970 by the server's clock.
CREATE TABLE IF NOT EXISTS lockstep_run (
  run_id VARBINARY(255) NOT NULL PRIMARY KEY,
  workflow VARBINARY(255) NOT NULL,
  version INT UNSIGNED NOT NULL,
  input MEDIUMBLOB NOT NULL,
  input_hash VARBINARY(64) NOT NULL,
  -- The parent run, and the name of the signal that it receives when this run ends.
  parent_run VARBINARY(255),
  parent_signal VARBINARY(255),
  -- Of a fork: the run whose results it uses, and the key of the first step of its own.
  origin_run VARBINARY(255),
  origin_step VARBINARY(512),
  -- 1 if the run goes on when its parent fails or is cancelled.
  detached TINYINT UNSIGNED NOT NULL DEFAULT 0,
  -- The run's place among due runs. An empty key stands for none.
  queue VARBINARY(255) NOT NULL DEFAULT 'default',
  turn_key VARBINARY(255) NOT NULL DEFAULT '',
  priority INT NOT NULL DEFAULT 0,
  status VARBINARY(16) NOT NULL,
  -- Raised by each claim: writes with a lower epoch are refused. The first epoch is the time in nanoseconds, so
  -- that a new run never has an epoch of a purged run with the same id.
  epoch BIGINT UNSIGNED NOT NULL,
  owner VARBINARY(255) NOT NULL,
  -- The mark of the call that claimed the run last. The call repeats it after a lost answer.
  claimed_by VARBINARY(36) NOT NULL,
  -- The mark of the call that reopened the run last.
  reopened_by VARBINARY(36),
  -- The earliest next claim: the end of a running run's lease, or the wake-up of a parked run. NULL for an ended
  -- run, and for a run that waits for a signal alone.
  due_at BIGINT,
  -- The reason of a parked run.
  reason VARBINARY(16),
  -- The lock that a parked run waits for.
  waits_for VARBINARY(512),
  crashes INT UNSIGNED NOT NULL,
  -- Counts the run's histories: ctx.continueAsNew begins the next one.
  part INT UNSIGNED NOT NULL DEFAULT 1,
  -- How many times in a row no process could execute the run.
  blocks INT UNSIGNED NOT NULL DEFAULT 0,
  -- 1 after the request, 2 after the next claim.
  cancelled TINYINT UNSIGNED NOT NULL,
  -- The number of the last signal.
  signals BIGINT UNSIGNED NOT NULL,
  -- The number of the last signal that is not the end of a child.
  last_sent BIGINT UNSIGNED NOT NULL DEFAULT 0,
  -- Of a run that is parked for children: the number of the signal that makes it due at once, and the microseconds
  -- from the first end of a child until it is due.
  wake_signal BIGINT UNSIGNED,
  wake_within BIGINT,
  -- The output of a completed run, or the error of another one.
  value MEDIUMBLOB,
  -- yes, no or unclear. NULL for a completed run.
  compensated VARBINARY(8),
  started_at BIGINT NOT NULL,
  -- The time of the last claim, park or end.
  changed_at BIGINT NOT NULL,
  -- The time from which an ended run counts as deleted.
  expires_at BIGINT,
  KEY lockstep_run_due (queue, workflow, version, due_at),
  KEY lockstep_run_line (queue, workflow, version, priority, turn_key, due_at),
  KEY lockstep_run_started (started_at),
  KEY lockstep_run_workflow (workflow, started_at),
  KEY lockstep_run_status (status, started_at),
  KEY lockstep_run_running (queue, status, turn_key),
  KEY lockstep_run_waiting (waits_for, started_at),
  KEY lockstep_run_key (turn_key, started_at),
  KEY lockstep_run_parent (parent_run, due_at),
  KEY lockstep_run_origin (origin_run, started_at),
  KEY lockstep_run_expires (expires_at)
) ENGINE = InnoDB;

-- The limits of queues, over all workers. A claim from a limited queue locks its row.
CREATE TABLE IF NOT EXISTS lockstep_queue (
  queue VARBINARY(255) NOT NULL PRIMARY KEY,
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
) ENGINE = InnoDB;

-- The time until which claims have used the rate of a key. A claim locks the queue's row first.
CREATE TABLE IF NOT EXISTS lockstep_key_rate (
  queue VARBINARY(255) NOT NULL,
  turn_key VARBINARY(255) NOT NULL,
  next_at BIGINT NOT NULL,
  PRIMARY KEY (queue, turn_key),
  KEY lockstep_key_rate_next (next_at)
) ENGINE = InnoDB;

-- The backlogs of runs by priority and key, so that a claim finds the keys behind a long backlog of one key.
CREATE TABLE IF NOT EXISTS lockstep_backlog (
  queue VARBINARY(255) NOT NULL,
  workflow VARBINARY(255) NOT NULL,
  version INT UNSIGNED NOT NULL,
  -- The priority with its sign changed: the primary key is in the order of turns.
  level INT NOT NULL,
  turn_key VARBINARY(255) NOT NULL,
  PRIMARY KEY (queue, workflow, version, level, turn_key)
) ENGINE = InnoDB;

-- The records of runs, one row per history and key. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_step (
  run_id VARBINARY(255) NOT NULL,
  -- The history that the record belongs to.
  part INT UNSIGNED NOT NULL,
  step_key VARBINARY(512) NOT NULL,
  -- An insert computes NULL here for a holder that has lost the run, and fails.
  epoch BIGINT UNSIGNED NOT NULL,
  kind VARBINARY(16) NOT NULL,
  outcome VARBINARY(16) NOT NULL,
  attempt INT UNSIGNED NOT NULL,
  value MEDIUMBLOB,
  -- Of a large value, which stands in lockstep_value.
  value_id VARBINARY(36),
  value_bytes BIGINT,
  args_hash VARBINARY(128),
  fence BLOB,
  -- In microseconds.
  took BIGINT,
  waited BIGINT,
  -- Greater than in all earlier records of the run.
  at BIGINT NOT NULL,
  -- In the order in which a history is read.
  PRIMARY KEY (run_id, part, at, step_key),
  -- The key comes first: MySQL would read and sort the whole history by (run_id, part).
  UNIQUE KEY lockstep_step_once (step_key, run_id, part)
) ENGINE = InnoDB;

-- Large values of records, in chunks.
CREATE TABLE IF NOT EXISTS lockstep_value (
  run_id VARBINARY(255) NOT NULL,
  part INT UNSIGNED NOT NULL,
  value_id VARBINARY(36) NOT NULL,
  chunk INT UNSIGNED NOT NULL,
  data MEDIUMBLOB NOT NULL,
  PRIMARY KEY (run_id, part, value_id, chunk)
) ENGINE = InnoDB;

-- All signals of runs.
CREATE TABLE IF NOT EXISTS lockstep_signal (
  run_id VARBINARY(255) NOT NULL,
  -- Counts the run's signals, in the order of their commits.
  seq BIGINT UNSIGNED NOT NULL,
  name VARBINARY(255) NOT NULL,
  dedupe_id VARBINARY(255) NOT NULL,
  payload MEDIUMBLOB NOT NULL,
  at BIGINT NOT NULL,
  -- The history that has received the signal. NULL: the current one, or none yet.
  part INT UNSIGNED,
  PRIMARY KEY (run_id, seq),
  UNIQUE KEY lockstep_signal_once (run_id, name, dedupe_id)
) ENGINE = InnoDB;
`,
  },
  {
    name: "0004-claim-owners",
    script: `
-- The owner of the claim's fence, as the lock's store names its holder: a store that loses its last writes may issue
-- the same token twice. NULL for claims from before this migration.
--
-- One line, hence one batch: an interrupted migration is repeated, and MySQL has no ADD COLUMN IF NOT EXISTS.
SET @add = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'lockstep_claim' AND column_name = 'owner') = 0, 'ALTER TABLE lockstep_claim ADD COLUMN owner VARBINARY(2048)', 'DO 0'); PREPARE change_claim FROM @add; EXECUTE change_claim; DEALLOCATE PREPARE change_claim;
`,
  },
  {
    name: "0005-orders",
    script: `
-- Orders for 'lockstep orders fulfil', with their answers.
CREATE TABLE IF NOT EXISTS lockstep_order (
  -- In the order of their arrival.
  seq BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  -- Also the operation id of the sale.
  order_id VARBINARY(255) NOT NULL,
  sku VARBINARY(255) NOT NULL,
  quantity BIGINT NOT NULL,
  -- NULL for an open order.
  answer VARBINARY(16),
  placed_at BIGINT NOT NULL,
  answered_at BIGINT,
  UNIQUE KEY lockstep_order_once (order_id),
  KEY lockstep_order_open (answer, sku, seq)
) ENGINE = InnoDB;
`,
  },
  {
    name: "0006-entities",
    script: `
-- Entities: one row per key. Times are microseconds since 1970 by the server's clock.
CREATE TABLE IF NOT EXISTS lockstep_entity (
  entity VARBINARY(255) NOT NULL,
  entity_key VARBINARY(255) NOT NULL,
  -- NULL before the first commit.
  state MEDIUMBLOB,
  -- Raised by each claim, and never reset: commits with a lower fence are refused.
  fence BIGINT NOT NULL,
  -- The mark of the call that claimed the entity last. The call repeats it after a lost answer.
  claimed_by VARBINARY(36) NOT NULL,
  -- The end of the claim's lease. 0 for a released claim.
  held_until BIGINT NOT NULL,
  -- Counts the visits: the order of the messages.
  seq BIGINT NOT NULL,
  PRIMARY KEY (entity, entity_key)
) ENGINE = InnoDB;

-- Messages that wait for their handlers.
CREATE TABLE IF NOT EXISTS lockstep_message (
  entity VARBINARY(255) NOT NULL,
  entity_key VARBINARY(255) NOT NULL,
  operation_id VARBINARY(255) NOT NULL,
  seq BIGINT NOT NULL,
  handler VARBINARY(255) NOT NULL,
  input MEDIUMBLOB NOT NULL,
  input_hash VARBINARY(64) NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (entity, entity_key, operation_id),
  KEY lockstep_message_seq (entity, entity_key, seq)
) ENGINE = InnoDB;

-- Answers to messages, one row per operation id. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_answer (
  entity VARBINARY(255) NOT NULL,
  entity_key VARBINARY(255) NOT NULL,
  operation_id VARBINARY(255) NOT NULL,
  input_hash VARBINARY(64) NOT NULL,
  outcome VARBINARY(16) NOT NULL,
  value MEDIUMBLOB NOT NULL,
  -- An insert computes NULL here for a claim that was lost, and fails.
  fence BIGINT NOT NULL,
  at BIGINT NOT NULL,
  expires_at BIGINT,
  PRIMARY KEY (entity, entity_key, operation_id),
  KEY lockstep_answer_expires (expires_at)
) ENGINE = InnoDB;
`,
  },
  {
    name: "0007-starts",
    script: `
-- The last run of each workflow and start key: for singletons and debounced starts.
CREATE TABLE IF NOT EXISTS lockstep_start (
  workflow VARBINARY(255) NOT NULL,
  start_key VARBINARY(255) NOT NULL,
  run_id VARBINARY(255) NOT NULL,
  PRIMARY KEY (workflow, start_key),
  KEY lockstep_start_run (run_id)
) ENGINE = InnoDB;
`,
  },
  {
    name: "0008-steps-in-progress",
    script: `
-- The steps of a running run that its holder had in progress for long at its last renewal, as JSON.
--
-- One line, hence one batch: an interrupted migration is repeated, and MySQL has no ADD COLUMN IF NOT EXISTS.
SET @add = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'lockstep_run' AND column_name = 'in_progress') = 0, 'ALTER TABLE lockstep_run ADD COLUMN in_progress MEDIUMBLOB', 'DO 0'); PREPARE change_run FROM @add; EXECUTE change_run; DEALLOCATE PREPARE change_run;
`,
  },
  {
    name: "0009-waiting-entities",
    script: `
-- Since when the oldest message of the entity waits. 0 without one. Polls read the longest waiting entities from the index.
--
-- One line, hence one batch: an interrupted migration is repeated, and MySQL has no ADD COLUMN IF NOT EXISTS.
SET @add = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'lockstep_entity' AND column_name = 'waits_since') = 0, 'ALTER TABLE lockstep_entity ADD COLUMN waits_since BIGINT NOT NULL DEFAULT 0, ADD KEY lockstep_entity_waits (entity, waits_since)', 'DO 0'); PREPARE change_entity FROM @add; EXECUTE change_entity; DEALLOCATE PREPARE change_entity;

UPDATE lockstep_entity SET waits_since = COALESCE((
  SELECT MIN(m.at) FROM lockstep_message AS m
  WHERE m.entity = lockstep_entity.entity AND m.entity_key = lockstep_entity.entity_key), 0);
`,
  },
  {
    name: "0010-takeovers",
    script: `
-- 1 if the lease of the holder before the last claim had expired.
--
-- One line, hence one batch: an interrupted migration is repeated, and MySQL has no ADD COLUMN IF NOT EXISTS.
SET @add = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'lockstep_run' AND column_name = 'taken_over') = 0, 'ALTER TABLE lockstep_run ADD COLUMN taken_over TINYINT UNSIGNED NOT NULL DEFAULT 0', 'DO 0'); PREPARE change_run FROM @add; EXECUTE change_run; DEALLOCATE PREPARE change_run;
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
--
-- One line, hence one batch: an interrupted migration is repeated, and MySQL has no ADD KEY IF NOT EXISTS.
SET @add = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'lockstep_run' AND index_name = 'lockstep_run_queue') = 0, 'ALTER TABLE lockstep_run ADD KEY lockstep_run_queue (queue, started_at)', 'DO 0'); PREPARE change_run FROM @add; EXECUTE change_run; DEALLOCATE PREPARE change_run;
`,
  },
  // Functions of PostgreSQL alone.
  { name: "0014-functions", script: "" },
];
