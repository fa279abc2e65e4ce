//! Ids as people type them.

/// What may be an id, or the beginning or end of one.
pub fn id(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty: expected an id, or the beginning or end of one".to_owned()),
        text => Ok(text.to_owned()),
    }
}
