-- Runs of workflows. Times are microseconds since 1970 by the machine's clock.
CREATE TABLE IF NOT EXISTS lockstep_run (
  run_id TEXT NOT NULL PRIMARY KEY,
  workflow TEXT NOT NULL,
  version INTEGER NOT NULL,
  input TEXT NOT NULL,
  input_hash TEXT NOT NULL,
  -- The run to send a signal of that name to when this one ends.
  parent_run TEXT,
  parent_signal TEXT,
  status TEXT NOT NULL,
  -- Raised whenever the run is taken: what names a lower one is refused. It starts at the time in nanoseconds,
  -- so that no run has an epoch of a purged one of the same id.
  epoch INTEGER NOT NULL,
  owner TEXT NOT NULL,
  -- A mark of the call that took it last, which comes again when its answer was lost.
  claimed_by TEXT NOT NULL,
  -- Whoever comes from then on may take it: the end of the lease while it runs, the wake-up while it is parked.
  -- None when it has ended, or waits for a signal alone.
  due_at INTEGER,
  -- Why it is parked.
  reason TEXT,
  crashes INTEGER NOT NULL,
  -- 1 from the request on, 2 once a holder has been told.
  cancelled INTEGER NOT NULL,
  -- The number of the last signal.
  signals INTEGER NOT NULL,
  value TEXT,
  compensated INTEGER,
  started_at INTEGER NOT NULL,
  -- When it was taken, parked or ended last.
  changed_at INTEGER NOT NULL,
  -- From then on an ended run is there no more.
  expires_at INTEGER
) STRICT;

CREATE INDEX IF NOT EXISTS lockstep_run_due ON lockstep_run (due_at, workflow, version);
CREATE INDEX IF NOT EXISTS lockstep_run_started ON lockstep_run (started_at);
CREATE INDEX IF NOT EXISTS lockstep_run_expires ON lockstep_run (expires_at);

-- What runs have done, once per key. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_step (
  run_id TEXT NOT NULL,
  step_key TEXT NOT NULL,
  -- Writing none is how a holder is refused that has lost the run.
  epoch INTEGER NOT NULL,
  kind TEXT NOT NULL,
  outcome TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  value TEXT,
  args_hash TEXT,
  fence TEXT,
  -- In microseconds.
  took INTEGER,
  waited INTEGER,
  -- Later than all that its run had written before.
  at INTEGER NOT NULL,
  PRIMARY KEY (run_id, step_key)
) STRICT;

-- Every signal that a run was sent.
CREATE TABLE IF NOT EXISTS lockstep_signal (
  run_id TEXT NOT NULL,
  -- Counts the run's signals, in the order of their commits.
  seq INTEGER NOT NULL,
  name TEXT NOT NULL,
  dedupe_id TEXT NOT NULL,
  payload TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (run_id, seq),
  UNIQUE (run_id, name, dedupe_id)
) STRICT;
