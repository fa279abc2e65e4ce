-- Version 2: events that follow one another and are about the same share a row. An execution has some fourteen of
-- them, which as rows of their own cost more than all else of it together.
CREATE TABLE event_batches (
    -- The number of its last event: what follows a number is then one range.
    last INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    execution_id BLOB,
    tool TEXT,
    caller_uid INTEGER,
    -- [[type, time, body], …]
    events TEXT NOT NULL
) STRICT;
INSERT INTO event_batches
    SELECT e.number, e.number, e.execution_id, e.tool, x.caller_uid, json_array(json_array(e.type, e.time, json(e.body)))
    FROM events e LEFT JOIN executions x ON x.id = e.execution_id;
DROP TABLE events;
ALTER TABLE event_batches RENAME TO events;
