use std::sync::{Mutex, PoisonError};

use crate::domain::{Connection, ConnectionResult};

/// How many destinations are told apart; what goes beyond is one more, named so.
const MAX_DESTINATIONS: usize = 50;

/// Under which name the rest is counted.
const OTHERS: &str = "others";

/// What of a destination's name is kept, in characters.
const NAME_CHARS: usize = 300;

/// What was asked for, and what became of it.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Vec<Connection>>);

impl Seen {
    pub(super) fn add(&self, to: &str, result: ConnectionResult) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let to: String = to.chars().take(NAME_CHARS).collect();
        let is_known = |known: &Connection| known.to == to && known.result == result;
        let is_rest = |known: &Connection| known.to == OTHERS && known.result == result;
        let is_full = seen.len() >= MAX_DESTINATIONS;
        if let Some(known) = seen.iter_mut().find(|known| is_known(known)) {
            known.count += 1;
        } else if let Some(rest) = seen.iter_mut().find(|known| is_full && is_rest(known)) {
            rest.count += 1;
        } else {
            let to = if is_full { OTHERS.to_owned() } else { to };
            seen.push(Connection {
                to,
                result,
                count: 1,
            });
        }
    }

    pub(super) fn list(&self) -> Vec<Connection> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_counted_and_bounded() {
        let seen = Seen::default();
        for port in 0..60 {
            for _ in 0..2 {
                seen.add(&format!("h:{port}"), ConnectionResult::Refused);
            }
        }
        seen.add("h:0", ConnectionResult::Connected);
        let list = seen.list();
        assert_eq!(list.len(), MAX_DESTINATIONS + 2);
        assert!(list[..50].iter().all(|known| known.count == 2));
        assert_eq!((list[50].to.as_str(), list[50].count), ("others", 20));
        assert_eq!(
            (list[51].to.as_str(), list[51].result),
            ("others", ConnectionResult::Connected)
        );
    }
}
