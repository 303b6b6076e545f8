-- One row: what all locks of this database have in common.
CREATE TABLE IF NOT EXISTS lockstep_store (
  id INTEGER NOT NULL PRIMARY KEY,
  -- Raised when tokens were lost or purged, so that every new fence is above the old ones.
  generation INTEGER NOT NULL,
  CHECK (id = 1)
) STRICT;

INSERT OR IGNORE INTO lockstep_store (id, generation) VALUES (1, 0);

-- Locks that are held. Times are microseconds since 1970 by the machine's clock.
CREATE TABLE IF NOT EXISTS lockstep_lock (
  name TEXT NOT NULL PRIMARY KEY,
  owner TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  -- Not before this may others take it: the expiry plus the holder's lock delay.
  free_at INTEGER NOT NULL
) STRICT;

-- The last fence of each name, as generation * 2^40 + token. It outlives the lock, because the next one is
-- counted from it.
CREATE TABLE IF NOT EXISTS lockstep_fence (
  name TEXT NOT NULL PRIMARY KEY,
  fence INTEGER NOT NULL
) STRICT;
