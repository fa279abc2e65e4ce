//! Our words and SQLite's values.

use std::path::PathBuf;

use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde_json::Value;

use super::Digest;
use super::record::ApprovalStatus;

impl ApprovalStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::Used => "used",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        [
            Self::Pending,
            Self::Approved,
            Self::Denied,
            Self::Expired,
            Self::Withdrawn,
            Self::Used,
        ]
        .into_iter()
        .find(|status| status.as_str() == word)
    }
}

pub(super) fn blob_id(blob: &[u8]) -> Option<[u8; 16]> {
    blob.try_into().ok()
}

pub(super) fn blob_digest(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Digest>> {
    let blob = row.get_ref(column)?.as_blob_or_null()?;
    Ok(blob.and_then(|blob| blob.try_into().ok()).map(Digest))
}

/// A column's sixteen bytes.
pub(super) fn id_bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<[u8; 16]>> {
    Ok(row.get_ref(column)?.as_blob_or_null()?.and_then(blob_id))
}

/// A column's JSON; null when there is none.
pub(super) fn json(row: &Row<'_>, column: usize) -> rusqlite::Result<Value> {
    Ok(optional_json(row, column)?.unwrap_or(Value::Null))
}

pub(super) fn optional_json(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Value>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(text) => serde_json::from_slice(text).ok(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => None,
    })
}

/// A column's word.
pub(super) fn word<T>(
    row: &Row<'_>,
    column: usize,
    read: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<Option<T>> {
    Ok(row.get_ref(column)?.as_str_or_null()?.and_then(read))
}

pub(super) fn path(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<PathBuf>> {
    let text: Option<String> = row.get(column)?;
    Ok(text.map(PathBuf::from))
}

/// A count, which SQLite keeps as a signed number.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
