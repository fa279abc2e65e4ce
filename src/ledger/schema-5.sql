-- Version 5: the executions of a trace are found without looking at the others.
CREATE INDEX executions_by_trace ON executions (trace_id) WHERE trace_id IS NOT NULL;
