-- Whose fence it is, by the name that the lock's store has for its holder: a store that has lost its last writes may
-- give the same token to two. None where the claim was made before there was this column.
ALTER TABLE lockstep_claim ADD COLUMN owner TEXT;
