-- Version 10: what is asked about says as well which version of the tool would run, how far it is trusted, with which
-- directory of the host's, and with which values.
ALTER TABLE approvals ADD COLUMN tool_version TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN risk_level TEXT NOT NULL DEFAULT 'trusted';
ALTER TABLE approvals ADD COLUMN workspace TEXT;
ALTER TABLE approvals ADD COLUMN context TEXT NOT NULL DEFAULT '{}';
