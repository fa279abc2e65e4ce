-- Version 6: approvals say all that would run.
ALTER TABLE approvals ADD COLUMN stdin TEXT;
ALTER TABLE approvals ADD COLUMN timeout_micros INTEGER;
ALTER TABLE approvals ADD COLUMN keeps_background INTEGER NOT NULL DEFAULT 0;
