-- Orders that wait for `lockstep orders fulfil`, and what they were answered.
CREATE TABLE IF NOT EXISTS lockstep_order (
  -- In the order of their arrival.
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  -- The operation id of its sale, too.
  order_id TEXT NOT NULL UNIQUE,
  sku TEXT NOT NULL,
  quantity INTEGER NOT NULL,
  -- None while it is open.
  answer TEXT,
  placed_at INTEGER NOT NULL,
  answered_at INTEGER
) STRICT;

CREATE INDEX IF NOT EXISTS lockstep_order_open ON lockstep_order (answer, sku, seq);
