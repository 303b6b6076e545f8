-- Orders that wait for `lockstep orders fulfil`, and what they were answered.
CREATE TABLE IF NOT EXISTS lockstep_order (
  -- In the order of their arrival.
  seq BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  -- The operation id of its sale, too.
  order_id VARBINARY(255) NOT NULL,
  sku VARBINARY(255) NOT NULL,
  quantity BIGINT NOT NULL,
  -- None while it is open.
  answer VARBINARY(16),
  placed_at BIGINT NOT NULL,
  answered_at BIGINT,
  UNIQUE KEY lockstep_order_once (order_id),
  KEY lockstep_order_open (answer, sku, seq)
) ENGINE = InnoDB;
