//! Shared places: what the script is asked, and what it says.

use super::LEASE;
use crate::flow::shares::{Cap, Claims};

pub(super) const SCRIPT: &str = include_str!("hold.lua");

/// What the names of all claims begin with, by when they came and by when they lapse.
const PREFIXES: [&str; 2] = ["shelly:places:", "shelly:leases:"];

pub(super) fn keys(claims: &Claims) -> Vec<String> {
    let name = |prefix| match &claims.cap {
        Cap::All => format!("{prefix}all"),
        Cap::Tool(name) => format!("{prefix}tool:{name}"),
    };
    PREFIXES.map(name).into()
}

pub(super) fn words(claims: &Claims) -> Vec<String> {
    let mut words = vec![
        claims.places.to_string(),
        LEASE.as_millis().to_string(),
        claims.claims.len().to_string(),
    ];
    for claim in &claims.claims {
        words.push(claim.id.clone());
        words.push(u8::from(claim.is_held).to_string());
    }
    words.extend(claims.gone.iter().cloned());
    words
}

/// What the script says of each claim. `None` if that is not it.
pub(super) fn read(numbers: &[i64], claims: &Claims) -> Option<Vec<bool>> {
    let read = |number: &i64| match number {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let held: Option<Vec<bool>> = numbers.iter().map(read).collect();
    held.filter(|held| held.len() == claims.claims.len())
}
