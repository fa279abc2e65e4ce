//! Questions to the file, each on a read-only connection of its own.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};

use super::chain::Link;
use super::convert::{
    blob_digest, id_bytes, optional_raw_json, path, places, raw_json, signed, unsigned, word,
};
use super::event::{EventFilter, EventPage, Events, Happened, NumberedEvents};
use super::record::{
    Approval, Claim, CloseRecord, Cursor, ExecutionRecord, Filter, Idempotency, Listed, OpenRecord,
    Output, Page, Place,
};
use super::store::Fault;
use super::time::{from_micros, micros};
use super::{Digest, approvals, search};
use crate::domain::{ApprovalId, ExecutionId, Lineage, Ruling, Status, TraceId, Verdict};

/// The columns that [`execution`] reads, in its order.
const COLUMNS: &str = "number, id, tool, status, caller_uid, caller_gid, asynchronous, call, working_dir, tool_use_id,
    trace_id, replay_of, idempotency_key, body_digest, verdict, rule, rule_source, approval_id, approver_uid, ending,
    problem, usage, stages, content_sha256, stdout_bytes, stdout_sha256, stderr_bytes, stderr_sha256, kept, content,
    stdout, stderr, created_at, started_at, ended_at, parent_id, depth";

/// The columns that [`listed`] reads, in its order.
const LISTED: &str =
    "id, tool, status, caller_uid, replay_of, created_at, started_at, ended_at, call, ending";

/// How many facets a query is asked for one by one; there are no more unless callers make up names.
const LIMIT: usize = 1000;

pub(super) fn get(
    connection: &Connection,
    id: ExecutionId,
) -> Result<Option<ExecutionRecord>, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM executions WHERE id = ?");
    let mut get = connection.prepare_cached(&sql)?;
    Ok(get.query_row([id.as_bytes()], execution).optional()?)
}

/// What has a caller's key, if anything has, as seen by who claims it for a call.
pub(super) fn holder(
    connection: &Connection,
    caller_uid: u32,
    claim: &Idempotency,
) -> Result<Option<Claim>, Fault> {
    let mut holder = connection.prepare_cached(
        "SELECT id, body_digest, ended_at IS NOT NULL FROM executions
         WHERE caller_uid = ? AND idempotency_key = ?",
    )?;
    let holder = holder.query_row(params![caller_uid, claim.key], |row| {
        let id = ExecutionId::from_bytes(row.get(0)?);
        let body_digest = Digest(row.get(1)?);
        Ok(match row.get(2)? {
            _ if body_digest != claim.body_digest => Claim::Conflict(id),
            true => Claim::Finished(id),
            false => Claim::InProgress(id),
        })
    });
    Ok(holder.optional()?)
}

/// All that have ended.
pub(super) fn ended(connection: &Connection) -> Result<HashSet<ExecutionId>, Fault> {
    let mut all = connection.prepare("SELECT id FROM executions WHERE ended_at IS NOT NULL")?;
    let rows = all.query_map([], |row| Ok(ExecutionId::from_bytes(row.get(0)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Those of which there is no record.
pub(super) fn unknown(
    connection: &Connection,
    ids: &[ExecutionId],
) -> Result<Vec<ExecutionId>, Fault> {
    let mut find = connection.prepare("SELECT 1 FROM executions WHERE id = ?")?;
    let mut unknown = Vec::new();
    for id in ids {
        if !find.exists([id.as_bytes()])? {
            unknown.push(*id);
        }
    }
    Ok(unknown)
}

/// Whether the trail tells of one of them.
pub(super) fn has_known(connection: &Connection, ids: &[ExecutionId]) -> Result<bool, Fault> {
    let ids: HashSet<&[u8]> = ids.iter().map(|id| id.as_bytes().as_slice()).collect();
    let mut trail = connection.prepare(
        "SELECT execution_id FROM audit WHERE execution_id IS NOT NULL ORDER BY number DESC",
    )?;
    let mut rows = trail.query([])?;
    while let Some(row) = rows.next()? {
        let id: [u8; 16] = row.get(0)?;
        if ids.contains(id.as_slice()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What came of an execution by calls of its tool, oldest first.
pub(super) fn descendants(
    connection: &Connection,
    id: ExecutionId,
) -> Result<Vec<ExecutionRecord>, Fault> {
    let sql = format!(
        "WITH RECURSIVE below(id) AS (
             SELECT id FROM executions WHERE parent_id = ?1
             UNION ALL SELECT e.id FROM below b JOIN executions e ON e.parent_id = b.id LIMIT {LIMIT})
         SELECT {COLUMNS} FROM executions WHERE id IN (SELECT id FROM below) ORDER BY number"
    );
    let mut below = connection.prepare_cached(&sql)?;
    let rows = below.query_map([id.as_bytes()], execution)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// All that have not ended, oldest first.
pub(super) fn open_ones(connection: &Connection) -> rusqlite::Result<Vec<ExecutionRecord>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM executions WHERE facet IN
         (SELECT facet FROM facets WHERE status IN ('queued', 'waiting', 'running')) ORDER BY number"
    );
    let mut open = connection.prepare(&sql)?;
    let rows = open.query_map([], execution)?;
    rows.collect()
}

/// One page of history, each execution as what `of` makes of it.
pub(super) fn list<T>(
    connection: &Connection,
    filter: &Filter,
    of: impl Fn(Listed<'_>) -> T,
) -> Result<Page<T>, Fault> {
    let limit = filter.limit.clamp(1, LIMIT);
    let from = filter.since.map_or(i64::MIN, micros);
    let mut before = filter.until.map_or(i64::MAX, micros);
    if let Some(Cursor(cursor)) = filter.cursor {
        before = before.min(cursor);
    }
    let range = Range {
        from,
        before,
        limit: limit + 1,
    };
    let numbers = matching(connection, filter, range)?;
    let sql = format!("SELECT {LISTED} FROM executions WHERE number = ?");
    let mut get = connection.prepare_cached(&sql)?;
    let mut records = Vec::new();
    for number in numbers.iter().take(limit) {
        let record = get.query_row([number], |row| listed(row).map(&of));
        // A text index that is damaged may know of what is not there.
        records.extend(record.optional()?);
    }
    let last = numbers.get(limit - 1).filter(|_| numbers.len() > limit);
    Ok(Page {
        records,
        next: last.copied().map(Cursor),
    })
}

/// Newest first, from `from` on and before `before`.
#[derive(Clone, Copy)]
struct Range {
    from: i64,
    before: i64,
    limit: usize,
}

/// The numbers of what a filter lets through.
fn matching(connection: &Connection, filter: &Filter, range: Range) -> Result<Vec<i64>, Fault> {
    if let (None, Some(trace)) = (&filter.text, &filter.trace_id) {
        return Ok(in_trace(connection, trace, filter, range)?);
    }
    let is_faceted =
        filter.tool.is_some() || filter.status.is_some() || filter.caller_uid.is_some();
    let facets = if is_faceted {
        Some(fitting(connection, filter)?)
    } else {
        None
    };
    let numbers = match (&filter.text, facets) {
        (Some(text), facets) => {
            let trace = filter.trace_id.as_ref();
            with_text(connection, text, trace, facets.as_deref(), range)?
        }
        (None, Some(facets)) => in_facets(connection, &facets, range)?,
        (None, None) => {
            let mut all = connection.prepare_cached(
                "SELECT number FROM executions WHERE number >= ? AND number < ? ORDER BY number DESC LIMIT ?",
            )?;
            let rows = all.query_map(
                params![range.from, range.before, range.limit as i64],
                |row| row.get(0),
            )?;
            rows.collect::<Result<_, _>>()?
        }
    };
    Ok(numbers)
}

struct Facet {
    facet: i64,
    /// Whether it is one of several tools, so that rows must be looked at.
    is_shared: bool,
    tool: Option<String>,
}

impl Facet {
    fn admits(&self) -> Option<&str> {
        self.tool.as_deref().filter(|_| self.is_shared)
    }
}

fn fitting(connection: &Connection, filter: &Filter) -> rusqlite::Result<Vec<Facet>> {
    let mut fitting = connection.prepare_cached(
        "SELECT facet, tool IS NULL FROM facets WHERE (?1 IS NULL OR tool IS NULL OR tool = ?1)
         AND (?2 IS NULL OR status = ?2) AND (?3 IS NULL OR caller_uid = ?3)",
    )?;
    let status = filter.status.map(Status::as_str);
    let rows = fitting.query_map(params![filter.tool, status, filter.caller_uid], |row| {
        Ok(Facet {
            facet: row.get(0)?,
            is_shared: row.get(1)?,
            tool: filter.tool.clone(),
        })
    })?;
    rows.collect()
}

/// Each facet's newest, merged.
fn in_facets(
    connection: &Connection,
    facets: &[Facet],
    range: Range,
) -> rusqlite::Result<Vec<i64>> {
    let mut own = connection.prepare_cached(
        "SELECT number FROM executions WHERE facet = ? AND number >= ? AND number < ? ORDER BY number DESC LIMIT ?",
    )?;
    let mut shared = connection.prepare_cached(
        "SELECT number FROM executions WHERE facet = ? AND number >= ? AND number < ? AND tool = ?
         ORDER BY number DESC LIMIT ?",
    )?;
    let mut numbers: Vec<i64> = Vec::new();
    for facet in facets {
        let (from, before, limit) = (range.from, range.before, range.limit as i64);
        let mut rows = match facet.admits() {
            Some(tool) => shared.query(params![facet.facet, from, before, tool, limit])?,
            None => own.query(params![facet.facet, from, before, limit])?,
        };
        while let Some(row) = rows.next()? {
            numbers.push(row.get(0)?);
        }
    }
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.truncate(range.limit);
    Ok(numbers)
}

/// Those of a trace, few enough to be looked at one by one.
fn in_trace(
    connection: &Connection,
    trace: &TraceId,
    filter: &Filter,
    range: Range,
) -> rusqlite::Result<Vec<i64>> {
    let mut own = connection.prepare_cached(
        "SELECT number FROM executions WHERE trace_id = ?1 AND number >= ?2 AND number < ?3
         AND (?4 IS NULL OR tool = ?4) AND (?5 IS NULL OR status = ?5) AND (?6 IS NULL OR caller_uid = ?6)
         ORDER BY number DESC LIMIT ?7",
    )?;
    let bound = params![
        trace.as_str(),
        range.from,
        range.before,
        filter.tool,
        filter.status.map(Status::as_str),
        filter.caller_uid,
        range.limit as i64
    ];
    let rows = own.query_map(bound, |row| row.get(0))?;
    rows.collect()
}

/// What the text index knows, newest first.
fn with_text(
    connection: &Connection,
    text: &str,
    trace: Option<&TraceId>,
    facets: Option<&[Facet]>,
    range: Range,
) -> Result<Vec<i64>, Fault> {
    let numbers: Option<Vec<i64>> =
        facets.map(|facets| facets.iter().map(|facet| facet.facet).collect());
    if numbers.as_ref().is_some_and(Vec::is_empty) {
        return Ok(Vec::new());
    }
    let expression = search::expression(text, numbers.as_deref()).map_err(Fault::Refused)?;
    let admits = facets.and_then(|facets| facets.iter().find_map(Facet::admits));
    let mut find = connection.prepare_cached(
        "SELECT s.rowid FROM search s WHERE search MATCH ?1 AND s.rowid >= ?2 AND s.rowid < ?3
         AND (coalesce(?4, ?5) IS NULL OR EXISTS (SELECT 1 FROM executions e WHERE e.number = s.rowid
             AND (?4 IS NULL OR e.tool = ?4) AND (?5 IS NULL OR e.trace_id = ?5)))
         ORDER BY s.rowid DESC LIMIT ?6",
    )?;
    let bound = params![
        expression,
        range.from,
        range.before,
        admits,
        trace.map(TraceId::as_str),
        range.limit as i64
    ];
    let rows = find.query_map(bound, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// An execution out of [`LISTED`].
fn listed<'r>(row: &'r Row<'_>) -> rusqlite::Result<Listed<'r>> {
    let time =
        |column| -> rusqlite::Result<_> { Ok(row.get::<_, Option<i64>>(column)?.map(from_micros)) };
    let json = |column| -> rusqlite::Result<_> {
        Ok(row.get_ref(column)?.as_bytes_or_null()?.unwrap_or_default())
    };
    Ok(Listed {
        id: ExecutionId::from_bytes(row.get(0)?),
        tool: row.get_ref(1)?.as_str()?,
        status: word(row, 2, Status::from_word)?.unwrap_or(Status::Lost),
        caller_uid: row.get(3)?,
        replay_of: id_bytes(row, 4)?.map(ExecutionId::from_bytes),
        created_at: time(5)?.unwrap_or(std::time::UNIX_EPOCH),
        started_at: time(6)?,
        ended_at: time(7)?,
        call: json(8)?,
        ending: json(9)?,
    })
}

/// An execution out of [`COLUMNS`].
fn execution(row: &Row<'_>) -> rusqlite::Result<ExecutionRecord> {
    let time =
        |column| -> rusqlite::Result<_> { Ok(row.get::<_, Option<i64>>(column)?.map(from_micros)) };
    let id = ExecutionId::from_bytes(row.get(1)?);
    let status = word(row, 3, Status::from_word)?.unwrap_or(Status::Lost);
    let idempotency = match (row.get(12)?, blob_digest(row, 13)?) {
        (Some(key), Some(body_digest)) => Some(Idempotency { key, body_digest }),
        (_, _) => None,
    };
    let ruling = match word(row, 14, Verdict::from_word)? {
        Some(verdict) => Some(Ruling {
            verdict,
            rule: row.get(15)?,
            source: row.get(16)?,
        }),
        None => None,
    };
    let open = OpenRecord {
        id,
        tool: row.get(2)?,
        caller_uid: row.get(4)?,
        caller_gid: row.get(5)?,
        call: raw_json(row, 7)?,
        working_dir: path(row, 8)?,
        asynchronous: row.get(6)?,
        status,
        created_at: time(32)?.unwrap_or(std::time::UNIX_EPOCH),
        replay_of: id_bytes(row, 11)?.map(ExecutionId::from_bytes),
        lineage: lineage(row)?,
        trace_id: word(row, 10, |text| text.parse().ok())?,
        tool_use_id: row.get(9)?,
        idempotency,
        ruling,
    };
    let started_at = time(33)?;
    let close = match time(34)? {
        Some(ended_at) => Some(close(
            row,
            CloseRecord {
                id,
                status,
                summary: String::new(),
                ending: raw_json(row, 19)?,
                problem: optional_raw_json(row, 20)?,
                usage: optional_raw_json(row, 21)?,
                stages: raw_json(row, 22)?,
                started_at,
                ended_at,
                approved: None,
                content: Output::default(),
                stdout: Output::default(),
                stderr: Output::default(),
            },
        )?),
        None => None,
    };
    Ok(ExecutionRecord {
        open,
        started_at,
        close,
        cursor: Cursor(row.get(0)?),
    })
}

/// Whose call it is.
fn lineage(row: &Row<'_>) -> rusqlite::Result<Option<Lineage>> {
    let depth = row.get(36)?;
    let parent = id_bytes(row, 35)?.map(ExecutionId::from_bytes);
    Ok(parent.map(|parent| Lineage { parent, depth }))
}

/// Fills in the outputs and the approval.
fn close(row: &Row<'_>, mut record: CloseRecord) -> rusqlite::Result<CloseRecord> {
    let (content_bytes, places) = places(row, 28)?;
    let bytes = [
        content_bytes,
        unsigned(row.get::<_, Option<i64>>(24)?.unwrap_or_default()),
        unsigned(row.get::<_, Option<i64>>(26)?.unwrap_or_default()),
    ];
    let outputs = [&mut record.content, &mut record.stdout, &mut record.stderr];
    for (at, ((output, place), bytes)) in outputs.into_iter().zip(places).zip(bytes).enumerate() {
        let place = match place {
            Place::Inline(_) => Place::Inline(row.get_ref(29 + at)?.as_bytes()?.to_vec()),
            place @ (Place::Nowhere | Place::InContent { .. } | Place::Spool { .. }) => place,
        };
        *output = Output {
            bytes,
            digest: blob_digest(row, [23, 25, 27][at])?,
            place,
        };
    }
    record.approved = match (id_bytes(row, 17)?, row.get(18)?) {
        (Some(id), Some(uid)) => Some((ApprovalId::from_bytes(id), uid)),
        (_, _) => None,
    };
    Ok(record)
}

/// Records of the audit trail from a number on, in order: some, or none where there is no further one. What
/// they hold is bounded, but for the last.
pub(super) fn links(connection: &Connection, from: i64) -> Result<Vec<Link>, Fault> {
    const MOST: usize = 256;
    const BYTES: usize = 256 << 10;
    let mut find = connection.prepare_cached(
        "SELECT number, time, kind, execution_id, body, previous, hash FROM audit WHERE number >= ? ORDER BY number",
    )?;
    let mut rows = find.query([from])?;
    let (mut links, mut bytes) = (Vec::new(), 0);
    while links.len() < MOST
        && bytes < BYTES
        && let Some(row) = rows.next()?
    {
        match Link::from_row(row) {
            Ok(link) => {
                bytes += link.body.len();
                links.push(link);
            }
            // Those before it come first.
            Err(Fault::Refused(_)) if !links.is_empty() => break,
            Err(fault) => return Err(fault),
        }
    }
    Ok(links)
}

/// The number of the first event that is kept. Rows follow one another, so that the first row has it; `min(first)` would go
/// through all of them, for every page that is read.
pub(super) const FIRST_EVENT: &str = "SELECT (SELECT first FROM events ORDER BY last LIMIT 1)";

/// Events after `after`, oldest first: of `limit` rows, each of which holds several.
///
/// Those of one execution, or of a tool or a user, are looked for in all rows from there on. That is bounded by what the
/// history keeps: some 0.1 s at 100,000 executions, beside whatever is written. With an index by execution each row
/// would take a quarter longer to write.
pub(super) fn events(
    connection: &Connection,
    after: u64,
    filter: &EventFilter,
    limit: usize,
) -> Result<EventPage, Fault> {
    let number = |sql: &str| -> Result<Option<i64>, Fault> {
        Ok(connection
            .prepare_cached(sql)?
            .query_row([], |row| row.get(0))?)
    };
    let last = number(
        "SELECT max(coalesce((SELECT max(last) FROM events), 0), coalesce((SELECT value FROM meta WHERE key = 'last_event'), 0))",
    )?.map_or(after, unsigned);
    let kept_from = number(FIRST_EVENT)?.map_or(last + 1, unsigned);
    // An execution's events are among those that were queued after it was opened.
    let begin = match filter.execution_id {
        Some(id) => {
            let mut first =
                connection.prepare_cached("SELECT first_event - 1 FROM executions WHERE id = ?")?;
            let first: Option<i64> = first
                .query_row([id.as_bytes()], |row| row.get(0))
                .optional()?;
            after.max(unsigned(first.unwrap_or_default()))
        }
        None => after,
    };
    let mut find = connection.prepare_cached(
        "SELECT first, execution_id, tool, caller_uid, events FROM events WHERE last > ?1
         AND (?2 IS NULL OR execution_id = ?2) AND (?3 IS NULL OR tool = ?3) AND (?4 IS NULL OR caller_uid = ?4)
         ORDER BY last LIMIT ?5",
    )?;
    let id = filter
        .execution_id
        .as_ref()
        .map(|id| id.as_bytes().as_slice());
    let bound = params![
        signed(begin),
        id,
        filter.tool,
        filter.caller_uid.filter(|_| filter.of_everybody.is_empty()),
        signed(limit as u64)
    ];
    let rows = find.query_map(bound, numbered)?;
    let rows: Vec<NumberedEvents> = rows.collect::<Result<_, _>>()?;
    let has_more = rows.len() == limit;
    Ok(EventPage {
        through: match rows.last() {
            Some(row) if has_more => row.last(),
            Some(_) | None => last.max(after),
        },
        events: rows
            .iter()
            .flat_map(|row| row.pick(after, filter))
            .collect(),
        has_more,
        kept_from,
    })
}

fn numbered(row: &Row<'_>) -> rusqlite::Result<NumberedEvents> {
    Ok(NumberedEvents {
        first: unsigned(row.get(0)?),
        events: Events {
            execution_id: id_bytes(row, 1)?.map(ExecutionId::from_bytes),
            tool: row.get(2)?,
            caller_uid: row.get(3)?,
            happened: Happened::from_json(row.get_ref(4)?.as_bytes()?),
        },
    })
}

/// Which approvals to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approvals {
    /// Those that wait for a decision.
    Pending,
    /// All that are kept.
    All,
    /// This one.
    One(ApprovalId),
}

/// Approvals, oldest first, each as what `of` makes of it.
pub(super) fn approvals<T>(
    connection: &Connection,
    which: Approvals,
    of: impl Fn(Approval) -> T,
) -> Result<Vec<T>, Fault> {
    let (condition, values) = match which {
        Approvals::Pending => ("status = 'pending'", None),
        Approvals::All => ("true", None),
        Approvals::One(id) => ("id = ?", Some(id.as_bytes().to_vec())),
    };
    let sql = format!(
        "SELECT {} FROM approvals WHERE {condition} ORDER BY id",
        approvals::COLUMNS
    );
    let mut find = connection.prepare_cached(&sql)?;
    let read = |row: &Row<'_>| approvals::read(row).map(&of);
    let rows = find.query_map(params_from_iter(values), read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}
