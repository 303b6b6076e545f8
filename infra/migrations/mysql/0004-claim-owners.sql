-- Whose fence it is, by the name that the lock's store has for its holder: a store that has lost its last writes may
-- give the same token to two. None where the claim was made before there was this column.
--
-- One line, hence one statement: a migration that was cut off is done again, and MySQL has no ADD COLUMN IF NOT EXISTS.
SET @add = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'lockstep_claim' AND column_name = 'owner') = 0, 'ALTER TABLE lockstep_claim ADD COLUMN owner VARBINARY(2048)', 'DO 0'); PREPARE change_claim FROM @add; EXECUTE change_claim; DEALLOCATE PREPARE change_claim;
