-- The highest fence that each resource has seen. Whoever comes with a lower one is late.
CREATE TABLE IF NOT EXISTS lockstep_claim (
  resource VARBINARY(512) NOT NULL PRIMARY KEY,
  generation INT UNSIGNED NOT NULL,
  token BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB;

-- The checks are the last line of defence: no statement can make a unit out of nothing.
CREATE TABLE IF NOT EXISTS lockstep_stock (
  sku VARBINARY(255) NOT NULL PRIMARY KEY,
  on_hand BIGINT NOT NULL,
  reserved BIGINT NOT NULL,
  sold BIGINT NOT NULL,
  -- All that ever came in.
  supplied BIGINT NOT NULL,
  -- The number of the last entry in the ledger.
  seq BIGINT UNSIGNED NOT NULL,
  -- A mark of the transaction that made it, so that its later statements know that it did.
  changed_by VARBINARY(36) NOT NULL,
  CHECK (on_hand >= 0),
  CHECK (reserved >= 0),
  CHECK (sold >= 0),
  CHECK (supplied = on_hand + reserved + sold)
) ENGINE = InnoDB;

-- What was done, once per operation id. Rows are never changed.
CREATE TABLE IF NOT EXISTS lockstep_ledger (
  sku VARBINARY(255) NOT NULL,
  -- Counts the sku's entries, in the order of their commits.
  seq BIGINT UNSIGNED NOT NULL,
  -- None for a reservation that expired by itself.
  operation_id VARBINARY(255) UNIQUE,
  payload_hash BINARY(32),
  kind VARBINARY(16) NOT NULL,
  quantity BIGINT NOT NULL,
  outcome VARBINARY(16) NOT NULL,
  -- What was on hand afterwards.
  on_hand BIGINT NOT NULL,
  reservation VARBINARY(255),
  generation INT UNSIGNED,
  token BIGINT UNSIGNED,
  -- Microseconds since 1970 by the server's clock.
  at BIGINT NOT NULL,
  PRIMARY KEY (sku, seq)
) ENGINE = InnoDB;

-- Reservations that are open. Closing one removes it; the ledger remembers.
CREATE TABLE IF NOT EXISTS lockstep_reservation (
  -- The operation that made it.
  id VARBINARY(255) NOT NULL PRIMARY KEY,
  sku VARBINARY(255) NOT NULL,
  quantity BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  -- Set only within the transaction that closes it.
  closed_by VARBINARY(255),
  KEY (sku, expires_at)
) ENGINE = InnoDB;
