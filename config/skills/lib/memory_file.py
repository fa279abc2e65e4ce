"""The store of the skills memory_*: one SQLite file, searched by its full-text index where SQLite has FTS5.

The file is the one that SHELLY_MEMORY_FILE names (in the call's `env`, or under [env] of executor.toml), else memory.db
in the daemon's usual state directory. Only its owner can read it.
"""

import contextlib
import datetime
import json
import os
import re
import sqlite3

# How many words of a query are looked for. A question has a dozen; a pasted document need not be slow.
MOST_WORDS = 100

COMMON = frozenset(
    "a am an and are as at be but by do does for from has have he how i in is it me my not of on or our she that the they"
    " this to us was we were what when where which who why will with you your".split()
)

_TABLE = """
CREATE TABLE IF NOT EXISTS memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    text TEXT NOT NULL UNIQUE,
    tags TEXT NOT NULL,
    created_at TEXT NOT NULL
)"""
# Words are found in their other forms, too: "prefers" by "prefer".
_INDEX = "CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'porter unicode61')"


def place():
    named = os.environ.get("SHELLY_MEMORY_FILE")
    if named:
        return named
    state = os.environ.get("XDG_STATE_HOME")
    if not state and os.geteuid() != 0:
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state or "/var/lib", "shelly-executor", "memory.db")


@contextlib.contextmanager
def opened():
    """A connection in one transaction, which is committed at the end unless something goes wrong."""
    path = place()
    os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    # Several skills may be at it at once: the others wait.
    connection = sqlite3.connect(path, timeout=10, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_TABLE)
        yield connection, _index(connection)
        connection.execute("COMMIT")
    finally:
        connection.close()


def _index(connection):
    """Whether there is a full-text index."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone():
        return True
    try:
        connection.execute(_INDEX)
    except sqlite3.OperationalError:
        return False
    connection.execute("INSERT INTO words (rowid, text) SELECT id, text FROM memories")
    return True


def store(text, tags):
    text = text.strip()
    with opened() as (connection, has_index):
        found = connection.execute("SELECT id, tags FROM memories WHERE text = ?", (text,)).fetchone()
        if found:
            tags = sorted(set(tags) | set(json.loads(found[1])))
            connection.execute("UPDATE memories SET tags = ? WHERE id = ?", (json.dumps(tags), found[0]))
            return {"id": found[0], "is_new": False}
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        row = (text, json.dumps(sorted(set(tags))), now)
        id = connection.execute("INSERT INTO memories (text, tags, created_at) VALUES (?, ?, ?)", row).lastrowid
        if has_index:
            connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (id, text))
        return {"id": id, "is_new": True}


def forget(id):
    with opened() as (connection, has_index):
        if has_index:
            connection.execute("DELETE FROM words WHERE rowid = ?", (id,))
        return connection.execute("DELETE FROM memories WHERE id = ?", (id,)).rowcount > 0


def search(query, tag, limit):
    words = re.findall(r"\w+", query)
    # Words that are in everything count only where there is nothing else.
    words = [word for word in words if word.lower() not in COMMON] or words
    words = list(dict.fromkeys(words))[:MOST_WORDS]
    with opened() as (connection, has_index):
        rows = []
        if words and has_index:
            # Quoted, a word is a word, and none of the index's operators.
            any_of = " OR ".join('"%s"' % word for word in words)
            sql = "SELECT m.* FROM words JOIN memories m ON m.id = words.rowid WHERE words MATCH ? ORDER BY words.rank, m.id DESC"
            rows = connection.execute(sql, (any_of,))
            rows = _chosen(rows, tag, limit)
        # Parts of words, as in languages that are written without blanks.
        if words and not rows:
            clause = " OR ".join(["text LIKE ? ESCAPE '\\'"] * len(words))
            parts = ["%" + re.sub(r"([\\%_])", r"\\\1", word) + "%" for word in words]
            rows = connection.execute("SELECT * FROM memories WHERE %s ORDER BY id DESC" % clause, parts)
            rows = _chosen(rows, tag, limit)
        if not query.strip():
            rows = _chosen(connection.execute("SELECT * FROM memories ORDER BY id DESC"), tag, limit)
        return rows


def _chosen(rows, tag, limit):
    chosen = []
    for id, text, tags, created_at in rows:
        tags = json.loads(tags)
        if tag is None or tag in tags:
            chosen.append({"id": id, "text": text, "tags": tags, "created_at": created_at})
        if len(chosen) == limit:
            break
    return chosen
