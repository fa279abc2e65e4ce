-- Version 4: approvals know which tools led to the call.
ALTER TABLE approvals ADD COLUMN chain TEXT NOT NULL DEFAULT '[]';
