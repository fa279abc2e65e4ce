//! The audit trail's chain: each record's hash covers it and the hash before it.

use std::cmp::Ordering;

use rusqlite::{Connection, Row, params};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::convert::{blob_digest, blob_id, signed, unsigned};
use super::store::Fault;
use super::{Digest, Head, LedgerError};
use crate::domain::ExecutionId;

/// Said first, so that a hash of this chain is none of anything else.
const DOMAIN: &[u8] = b"shelly-executor audit 1\n";

/// One record of the chain, as it stands in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// 1 and up, without gaps.
    pub number: u64,
    /// Microseconds since 1970.
    pub time: i64,
    /// What kind of record it is.
    pub kind: String,
    /// The execution it is about.
    pub execution_id: Option<ExecutionId>,
    /// The rest, as JSON text.
    pub body: String,
    /// The hash of the record before; zeros before the first.
    pub previous: Digest,
    /// Of all of the above.
    pub hash: Digest,
}

/// What a check of the chain found.
#[derive(Clone, Debug, PartialEq)]
pub enum Chain {
    /// It holds, to this end.
    Holds(Head),
    /// It does not.
    Broken {
        /// The first record that is not as it was written, or is not there.
        at: u64,
        /// What is wrong with it.
        detail: String,
    },
}

impl Link {
    /// The record that follows `head`.
    pub(super) fn after(
        head: Head,
        time: i64,
        kind: &str,
        execution_id: Option<ExecutionId>,
        body: String,
    ) -> Self {
        let mut link = Self {
            number: head.number + 1,
            time,
            kind: kind.to_owned(),
            execution_id,
            body,
            previous: head.hash,
            hash: Digest::ZERO,
        };
        link.hash = link.computed();
        link
    }

    /// The end of a chain that ends with this record.
    pub fn head(&self) -> Head {
        Head {
            number: self.number,
            hash: self.hash,
        }
    }

    /// The hash that the record should have: over the domain's name, the hash before, number and
    /// time as eight bytes each (big end first), then kind, id and body, each after its length
    /// in eight bytes.
    fn computed(&self) -> Digest {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(self.previous.0);
        hash.update(self.number.to_be_bytes());
        hash.update(self.time.to_be_bytes());
        let id = self
            .execution_id
            .as_ref()
            .map_or(&[][..], |id| id.as_bytes());
        for part in [self.kind.as_bytes(), id, self.body.as_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Digest(hash.finalize().into())
    }

    /// The record as one line of JSON, its body byte for byte.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            number: u64,
            time_us: i64,
            kind: &'a str,
            execution_id: Option<String>,
            body: Option<&'a RawValue>,
            previous: String,
            hash: String,
        }
        let line = Line {
            number: self.number,
            time_us: self.time,
            kind: &self.kind,
            execution_id: self.execution_id.map(|id| id.to_string()),
            body: serde_json::from_str(&self.body).ok(),
            previous: self.previous.to_string(),
            hash: self.hash.to_string(),
        };
        serde_json::to_string(&line).unwrap_or_default()
    }

    /// Reads one. What cannot be one is refused, not read as something that can: the hash covers what is read.
    pub(super) fn from_row(row: &Row<'_>) -> Result<Self, Fault> {
        const NO_ID: &str = "its id is none of 16 bytes";
        let number: i64 = row.get(0)?;
        let altered = |detail: &str| {
            Fault::Refused(LedgerError::Altered {
                number,
                detail: detail.to_owned(),
            })
        };
        let text = |column, what| -> Result<String, Fault> {
            let text = row.get_ref(column)?.as_str();
            text.map(str::to_owned).map_err(|_| altered(what))
        };
        let digest = |column, what| -> Result<Digest, Fault> {
            blob_digest(row, column)?.ok_or_else(|| altered(what))
        };
        let id = row.get_ref(3)?.as_blob_or_null();
        let id = id.map_err(|_| altered(NO_ID))?;
        let id = id.map(|id| blob_id(id).ok_or_else(|| altered(NO_ID)));
        Ok(Self {
            number: u64::try_from(number)
                .ok()
                .filter(|number| *number > 0)
                .ok_or_else(|| altered("the first has number 1"))?,
            time: row.get(1)?,
            kind: text(2, "its kind is no UTF-8")?,
            execution_id: id.transpose()?.map(ExecutionId::from_bytes),
            body: text(4, "its body is no UTF-8")?,
            previous: digest(5, "the hash before it is none of 32 bytes")?,
            hash: digest(6, "its hash is none of 32 bytes")?,
        })
    }

    pub(super) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection
            .prepare_cached("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?)")?
            .execute(params![
                self.number as i64,
                self.time,
                self.kind,
                self.execution_id
                    .as_ref()
                    .map(|id| id.as_bytes().as_slice()),
                self.body,
                self.previous.0,
                self.hash.0,
            ])?;
        Ok(())
    }
}

/// Checks a chain as it is read, in constant memory.
#[derive(Debug)]
pub struct Verifier {
    head: Head,
    /// Those that are still to come, the last of them first.
    known: Vec<Head>,
    broken: Option<Chain>,
}

impl Verifier {
    /// `known` are heads that were written down elsewhere: the chain must hold them.
    pub fn new(known: impl IntoIterator<Item = Head>) -> Self {
        let mut known: Vec<_> = known.into_iter().filter(|head| head.number > 0).collect();
        known.sort_unstable_by_key(|head| std::cmp::Reverse(head.number));
        Self {
            head: Head {
                number: 0,
                hash: Digest::ZERO,
            },
            known,
            broken: None,
        }
    }

    /// Takes the next record; false when there is no need to go on.
    pub fn take(&mut self, link: &Link) -> bool {
        let expected = self.head.number + 1;
        let wrong = if link.number != expected {
            Some(format!(
                "record {expected} is not there, {} follows",
                link.number
            ))
        } else if link.previous != self.head.hash {
            Some("it does not follow the record before it".to_owned())
        } else if link.hash != link.computed() {
            Some("it is not what was written".to_owned())
        } else if !self.is_as_known(link) {
            Some("it is not the record that was known".to_owned())
        } else {
            None
        };
        if let Some(detail) = wrong {
            self.broken = Some(Chain::Broken {
                at: expected,
                detail,
            });
            return false;
        }
        self.head = link.head();
        true
    }

    /// Whether the record is what every known head of its number says, none of which is needed again.
    fn is_as_known(&mut self, link: &Link) -> bool {
        let mut is_as_known = true;
        while let Some(known) = self.known.pop_if(|known| known.number == link.number) {
            is_as_known &= known.hash == link.hash;
        }
        is_as_known
    }

    /// Takes the next record where it is none that was ever written, whatever its hash.
    pub(super) fn take_altered(&mut self, number: i64, detail: String) {
        let expected = self.head.number + 1;
        let detail = match number.cmp(&signed(expected)) {
            Ordering::Equal => detail,
            Ordering::Greater => format!("record {expected} is not there, {number} follows"),
            Ordering::Less => format!("record {number} is before it: {detail}"),
        };
        self.broken = Some(Chain::Broken {
            at: expected,
            detail,
        });
    }

    /// What was found.
    pub fn finish(self) -> Chain {
        if let Some(broken) = self.broken {
            return broken;
        }
        match self.known.first() {
            Some(Head { number, .. }) => Chain::Broken {
                at: self.head.number + 1,
                detail: format!("the chain is cut off: it went on to record {number} at least"),
            },
            None => Chain::Holds(self.head),
        }
    }
}

/// The end of the chain in the file.
pub(super) fn head(connection: &Connection) -> rusqlite::Result<Head> {
    let mut last =
        connection.prepare_cached("SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1")?;
    let mut rows = last.query([])?;
    Ok(match rows.next()? {
        Some(row) => Head {
            number: unsigned(row.get(0)?),
            hash: blob_digest(row, 1)?.unwrap_or(Digest::ZERO),
        },
        None => Head {
            number: 0,
            hash: Digest::ZERO,
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chain(bodies: &[String]) -> Vec<Link> {
        let mut head = Verifier::new(None).head;
        let mut links = Vec::new();
        for (at, body) in bodies.iter().enumerate() {
            let id = (at % 2 == 0).then(ExecutionId::new);
            let link = Link::after(head, at as i64, "ending", id, body.clone());
            head = link.head();
            links.push(link);
        }
        links
    }

    fn verify(links: &[Link], known: impl IntoIterator<Item = Head>) -> Chain {
        let mut verifier = Verifier::new(known);
        let _ = links.iter().all(|link| verifier.take(link));
        verifier.finish()
    }

    fn bodies() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("[a-z{}\":]{0,12}", 2..20)
    }

    /// Changes one thing of one record.
    fn tamper(link: &mut Link, what: usize) {
        match what {
            0 => link.number += 1,
            1 => link.time += 1,
            2 => link.kind.push('x'),
            3 => link.execution_id = Some(ExecutionId::new()),
            4 => link.body.insert(0, 'x'),
            5 => link.previous.0[31] ^= 1,
            6 => link.hash.0[0] ^= 0x80,
            // What moves from one part to the next.
            _ => {
                let last = link.kind.pop().expect("not empty");
                link.body.insert(0, last);
            }
        }
    }

    proptest! {
        #[test]
        fn an_untouched_chain_holds(bodies in bodies()) {
            let links = chain(&bodies);
            let head = links[links.len() - 1].head();
            prop_assert_eq!(verify(&links, Some(head)), Chain::Holds(head));
            prop_assert_eq!(verify(&links, Some(links[0].head())), Chain::Holds(head));
        }

        #[test]
        fn any_change_is_found(bodies in bodies(), at: prop::sample::Index, what in 0_usize..8) {
            let mut links = chain(&bodies);
            let head = links[links.len() - 1].head();
            let at = at.index(links.len());
            tamper(&mut links[at], what);
            let found = verify(&links, Some(head));
            prop_assert!(matches!(found, Chain::Broken { .. }), "{:?}", found);
        }

        #[test]
        fn a_change_with_a_hash_made_anew_is_found(bodies in bodies(), at: prop::sample::Index) {
            let mut links = chain(&bodies);
            let head = links[links.len() - 1].head();
            let at = at.index(links.len());
            links[at].body.push('x');
            links[at].hash = links[at].computed();
            let found = verify(&links, Some(head));
            prop_assert!(matches!(found, Chain::Broken { .. }), "{:?}", found);
        }

        #[test]
        fn any_removal_and_any_cut_is_found(bodies in bodies(), at: prop::sample::Index, cut: bool) {
            let mut links = chain(&bodies);
            let head = links[links.len() - 1].head();
            let at = at.index(links.len());
            if cut { links.truncate(at) } else { links.remove(at); }
            let found = verify(&links, Some(head));
            prop_assert!(matches!(found, Chain::Broken { at: found, .. } if found == at as u64 + 1), "{:?}", found);
        }

        #[test]
        fn a_head_of_what_was_cut_off_is_found_though_others_hold(
            bodies in bodies(), at: prop::sample::Index, known: prop::sample::Index,
        ) {
            let mut links = chain(&bodies);
            let at = at.index(links.len());
            let old = links.split_off(at);
            let old = old[known.index(old.len())].head();
            // It goes on with other records, for longer than before.
            for number in at..=bodies.len() {
                let head = links.last().map_or(Verifier::new(None).head, Link::head);
                links.push(Link::after(head, number as i64, "other", None, String::new()));
            }
            let heads: Vec<_> = links.iter().map(Link::head).collect();
            prop_assert!(matches!(verify(&links, heads.clone()), Chain::Holds(_)));
            let found = verify(&links, heads.into_iter().chain([old]));
            prop_assert!(matches!(found, Chain::Broken { at, .. } if at == old.number), "{:?}", found);
        }

        #[test]
        fn any_swap_is_found(bodies in bodies(), a: prop::sample::Index, b: prop::sample::Index, renumber: bool) {
            let mut links = chain(&bodies);
            let head = links[links.len() - 1].head();
            let (a, b) = (a.index(links.len()), b.index(links.len()));
            prop_assume!(a != b);
            links.swap(a, b);
            if renumber {
                let number = links[a].number;
                links[a].number = links[b].number;
                links[b].number = number;
            }
            let found = verify(&links, Some(head));
            prop_assert!(matches!(found, Chain::Broken { .. }), "{:?}", found);
        }
    }
}
