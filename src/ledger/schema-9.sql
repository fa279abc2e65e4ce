-- Version 9: the text index has what callers said, and not the JSON that it is kept as: of a line behind another the first
-- word was not found, and the names of members were, in every call. Of scripts without blanks each character is a word.
DROP TABLE search;
CREATE VIRTUAL TABLE search USING fts5 (facet, call, content, content = '');
INSERT INTO search (rowid, facet, call, content)
    SELECT e.number, CAST(e.facet AS TEXT), words_of_call(e.call), words_of_answer(e.content)
    FROM executions e
    WHERE e.id IN (
        SELECT execution_id FROM audit
        WHERE kind IN ('ending', 'lost') AND number <= (SELECT value FROM meta WHERE key = 'indexed')
    )
    ORDER BY e.number;
