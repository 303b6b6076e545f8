-- One row: what all locks of this database have in common.
CREATE TABLE IF NOT EXISTS lockstep_store (
  id TINYINT UNSIGNED NOT NULL PRIMARY KEY,
  -- Raised when tokens were lost or purged, so that every new fence is above the old ones.
  generation INT UNSIGNED NOT NULL,
  CHECK (id = 1)
) ENGINE = InnoDB;

INSERT IGNORE INTO lockstep_store (id, generation) VALUES (1, 0);

-- Locks that are held. Times are microseconds since 1970 by the server's clock.
CREATE TABLE IF NOT EXISTS lockstep_lock (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  owner VARBINARY(255) NOT NULL,
  expires_at BIGINT NOT NULL,
  -- Not before this may others take it: the expiry plus the holder's lock delay.
  free_at BIGINT NOT NULL
) ENGINE = InnoDB;

-- The last fence of each name, as generation * 2^40 + token. It outlives the lock, because the next one is
-- counted from it.
CREATE TABLE IF NOT EXISTS lockstep_fence (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  fence BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB;
