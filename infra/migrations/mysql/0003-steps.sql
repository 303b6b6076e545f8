-- Runs of workflows. Times are microseconds since 1970 by the server's clock.
CREATE TABLE IF NOT EXISTS lockstep_run (
  run_id VARBINARY(255) NOT NULL PRIMARY KEY,
  workflow VARBINARY(255) NOT NULL,
  version INT UNSIGNED NOT NULL,
  input MEDIUMBLOB NOT NULL,
  input_hash VARBINARY(64) NOT NULL,
  -- The run to send a signal of that name to when this one ends.
  parent_run VARBINARY(255),
  parent_signal VARBINARY(255),
  status VARBINARY(16) NOT NULL,
  -- Raised whenever the run is taken: what names a lower one is refused. It starts at the time in nanoseconds,
  -- so that no run has an epoch of a purged one of the same id.
  epoch BIGINT UNSIGNED NOT NULL,
  owner VARBINARY(255) NOT NULL,
  -- A mark of the call that took it last, which comes again when its answer was lost.
  claimed_by VARBINARY(36) NOT NULL,
  -- Whoever comes from then on may take it: the end of the lease while it runs, the wake-up while it is parked.
  -- None when it has ended, or waits for a signal alone.
  due_at BIGINT,
  -- Why it is parked.
  reason VARBINARY(16),
  crashes INT UNSIGNED NOT NULL,
  -- 1 from the request on, 2 once a holder has been told.
  cancelled TINYINT UNSIGNED NOT NULL,
  -- The number of the last signal.
  signals BIGINT UNSIGNED NOT NULL,
  value MEDIUMBLOB,
  compensated TINYINT UNSIGNED,
  started_at BIGINT NOT NULL,
  -- When it was taken, parked or ended last.
  changed_at BIGINT NOT NULL,
  -- From then on an ended run is there no more.
  expires_at BIGINT,
  KEY lockstep_run_due (due_at, workflow, version),
  KEY lockstep_run_started (started_at),
  KEY lockstep_run_expires (expires_at)
) ENGINE = InnoDB;

-- What runs have done, once per key. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_step (
  run_id VARBINARY(255) NOT NULL,
  step_key VARBINARY(512) NOT NULL,
  -- Writing none is how a holder is refused that has lost the run.
  epoch BIGINT UNSIGNED NOT NULL,
  kind VARBINARY(16) NOT NULL,
  outcome VARBINARY(16) NOT NULL,
  attempt INT UNSIGNED NOT NULL,
  value MEDIUMBLOB,
  args_hash VARBINARY(128),
  fence BLOB,
  -- In microseconds.
  took BIGINT,
  waited BIGINT,
  -- Later than all that its run had written before.
  at BIGINT NOT NULL,
  PRIMARY KEY (run_id, step_key)
) ENGINE = InnoDB;

-- Every signal that a run was sent.
CREATE TABLE IF NOT EXISTS lockstep_signal (
  run_id VARBINARY(255) NOT NULL,
  -- Counts the run's signals, in the order of their commits.
  seq BIGINT UNSIGNED NOT NULL,
  name VARBINARY(255) NOT NULL,
  dedupe_id VARBINARY(255) NOT NULL,
  payload MEDIUMBLOB NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (run_id, seq),
  UNIQUE KEY lockstep_signal_once (run_id, name, dedupe_id)
) ENGINE = InnoDB;
