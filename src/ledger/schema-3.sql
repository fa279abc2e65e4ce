-- Version 3: calls that tools make know whose they are.
ALTER TABLE executions ADD COLUMN parent_id BLOB;
ALTER TABLE executions ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
CREATE INDEX executions_by_parent ON executions (parent_id) WHERE parent_id IS NOT NULL;
