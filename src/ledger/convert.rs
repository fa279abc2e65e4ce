//! Our words and SQLite's values.

use std::path::PathBuf;

use rusqlite::Row;
use serde_json::Value;

use super::{Digest, Json, Place};

pub(super) fn blob_id(blob: &[u8]) -> Option<[u8; 16]> {
    blob.try_into().ok()
}

pub(super) fn blob_digest(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Digest>> {
    let blob = row.get_ref(column)?.as_blob_or_null()?;
    Ok(blob.and_then(|blob| blob.try_into().ok()).map(Digest))
}

/// A column's JSON as it stands; `null` when there is none.
pub(super) fn raw_json(row: &Row<'_>, column: usize) -> rusqlite::Result<Json> {
    Ok(optional_raw_json(row, column)?.unwrap_or_default())
}

pub(super) fn optional_raw_json(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Json>> {
    Ok(row
        .get_ref(column)?
        .as_str_or_null()?
        .and_then(Json::from_text))
}

/// A column's sixteen bytes.
pub(super) fn id_bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<[u8; 16]>> {
    Ok(row.get_ref(column)?.as_blob_or_null()?.and_then(blob_id))
}

/// A column's JSON; null when there is none.
pub(super) fn json(row: &Row<'_>, column: usize) -> rusqlite::Result<Value> {
    let text = row.get_ref(column)?.as_str_or_null()?;
    Ok(text
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or(Value::Null))
}

/// How long a text for the model is, and where it and both streams are.
pub(super) fn places(row: &Row<'_>, column: usize) -> rusqlite::Result<(u64, [Place; 3])> {
    Ok(serde_json::from_value(json(row, column)?).unwrap_or_default())
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
