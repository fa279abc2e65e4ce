use parking_lot::Mutex;

use crate::config::Destination;
use crate::domain::{Connection, ConnectionResult};

/// How many destinations that are not on the list are told apart; the rest are counted as one. What is
/// on the list is told always: there are only so many.
const MAX_REFUSED: usize = 50;

/// Under which name the rest is counted, and under which what names no destination at all. No
/// destination is called so, for those have a port.
const OTHERS: &str = "others";
const MALFORMED: &str = "malformed";

/// What was asked for, and what became of it.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    connections: Vec<Connection>,
    refused: usize,
    is_closed: bool,
}

/// That it is over: nothing is connected to any more.
#[derive(Debug)]
pub(super) struct Closed;

impl Seen {
    /// Counts one; says whether it is the first of its kind. `None`: what named no destination.
    ///
    /// # Errors
    /// When it is over.
    pub(super) fn add(
        &self,
        to: Option<&Destination>,
        result: ConnectionResult,
    ) -> Result<bool, Closed> {
        let mut asked = self.0.lock();
        if asked.is_closed {
            return Err(Closed);
        }
        let mut to = to.map_or_else(|| MALFORMED.to_owned(), ToString::to_string);
        let is_refused = result == ConnectionResult::Refused;
        if !asked.knows(&to, result) && is_refused && asked.refused >= MAX_REFUSED {
            to = OTHERS.to_owned();
        }
        if let Some(known) = asked.find(&to, result) {
            known.count += 1;
            return Ok(false);
        }
        asked.refused += usize::from(is_refused);
        asked.connections.push(Connection {
            to,
            result,
            count: 1,
        });
        Ok(true)
    }

    /// Ends it, and lists what there was.
    pub(super) fn close(&self) -> Vec<Connection> {
        let mut asked = self.0.lock();
        asked.is_closed = true;
        asked.connections.clone()
    }

    /// Whether it is over.
    pub(super) fn is_closed(&self) -> bool {
        let asked = self.0.lock();
        asked.is_closed
    }
}

impl Asked {
    fn find(&mut self, to: &str, result: ConnectionResult) -> Option<&mut Connection> {
        let is_it = |known: &&mut Connection| known.to == to && known.result == result;
        self.connections.iter_mut().find(is_it)
    }

    fn knows(&mut self, to: &str, result: ConnectionResult) -> bool {
        self.find(to, result).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_counted_and_what_is_listed_is_never_lost() {
        let seen = Seen::default();
        let refused = ConnectionResult::Refused;
        let to = |port: u16| format!("h:{port}").parse::<Destination>().expect("valid");
        for port in 1..=60 {
            for round in 0..2 {
                let is_new = seen.add(Some(&to(port)), refused).expect("open");
                assert_eq!(is_new, round == 0 && port <= 51, "{port}");
            }
        }
        let connected = ConnectionResult::Connected;
        assert!(seen.add(Some(&to(1)), connected).expect("open"));
        seen.add(None, refused).expect("open");
        let list = seen.close();
        assert!(list[..50].iter().all(|known| known.count == 2));
        let rest: Vec<_> = list[50..].iter().collect();
        assert_eq!((rest[0].to.as_str(), rest[0].count), ("others", 21));
        assert_eq!((rest[1].to.as_str(), rest[1].result), ("h:1", connected));
        assert_eq!(rest.len(), 2);
        assert!(seen.is_closed() && seen.add(Some(&to(1)), connected).is_err());
    }

    #[test]
    fn what_names_nothing_is_told_as_that() {
        let seen = Seen::default();
        seen.add(None, ConnectionResult::Refused).expect("open");
        assert_eq!(seen.close()[0].to, "malformed");
    }
}
