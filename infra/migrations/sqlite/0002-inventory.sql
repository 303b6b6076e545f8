-- The highest fence that each resource has seen. Whoever comes with a lower one is late.
CREATE TABLE IF NOT EXISTS lockstep_claim (
  resource TEXT NOT NULL PRIMARY KEY,
  generation INTEGER NOT NULL,
  token INTEGER NOT NULL
) STRICT;

-- The checks are the last line of defence: no statement can make a unit out of nothing.
CREATE TABLE IF NOT EXISTS lockstep_stock (
  sku TEXT NOT NULL PRIMARY KEY,
  on_hand INTEGER NOT NULL,
  reserved INTEGER NOT NULL,
  sold INTEGER NOT NULL,
  -- All that ever came in.
  supplied INTEGER NOT NULL,
  -- The number of the last entry in the ledger.
  seq INTEGER NOT NULL,
  -- A mark of the transaction that made it, so that its later statements know that it did.
  changed_by TEXT NOT NULL,
  CHECK (on_hand >= 0),
  CHECK (reserved >= 0),
  CHECK (sold >= 0),
  CHECK (supplied = on_hand + reserved + sold)
) STRICT;

-- What was done, once per operation id. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_ledger (
  sku TEXT NOT NULL,
  -- Counts the sku's entries, in the order of their commits.
  seq INTEGER NOT NULL,
  -- None for a reservation that expired by itself.
  operation_id TEXT UNIQUE,
  payload_hash BLOB,
  kind TEXT NOT NULL,
  quantity INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  -- What was on hand afterwards.
  on_hand INTEGER NOT NULL,
  reservation TEXT,
  generation INTEGER,
  token INTEGER,
  -- Microseconds since 1970 by the machine's clock.
  at INTEGER NOT NULL,
  PRIMARY KEY (sku, seq)
) STRICT, WITHOUT ROWID;

-- Reservations that are open. Closing one removes it; the ledger remembers.
CREATE TABLE IF NOT EXISTS lockstep_reservation (
  -- The operation that made it.
  id TEXT NOT NULL PRIMARY KEY,
  sku TEXT NOT NULL,
  quantity INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  -- Set only within the transaction that closes it.
  closed_by TEXT
) STRICT;

CREATE INDEX IF NOT EXISTS lockstep_reservation_sku ON lockstep_reservation (sku, expires_at);
