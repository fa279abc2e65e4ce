//! The values that a call brings along and that skills read and write: shared by all that comes of
//! one outermost call, those of a session by all calls of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::domain::{Scope, ScopedValues};

/// How many sessions are known at once; the one that was not used for longest is forgotten for a
/// new one. Each takes `max_context_bytes` at the most.
const MAX_SESSIONS: usize = 1000;

/// How much memory the values of all sessions may take together, in bytes, those of the one in use aside; of short values
/// that is many times what they have as JSON.
const MAX_SESSIONS_BYTES: usize = 64 << 20;

/// The longest name of a value, in bytes: a word or a path of some.
const MAX_NAME_BYTES: usize = 256;

type Session = Arc<SessionValues>;

/// The values of a session.
#[derive(Debug, Default)]
pub(super) struct SessionValues {
    values: Mutex<Map<String, Value>>,
    /// How much memory they took at the most since some were brought last.
    bytes: AtomicUsize,
}

/// The values of one family of executions.
#[derive(Debug, Default)]
pub(super) struct SharedValues {
    own: Mutex<ScopedValues>,
    session: Session,
}

/// Why a value cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotKeep {
    /// There would be too much of it.
    #[error(
        "the values would take {bytes} bytes, and may take {max_bytes} ([skills] max_context_bytes)"
    )]
    TooMuch {
        /// With this one.
        bytes: usize,
        /// In all.
        max_bytes: usize,
    },
    /// Its name is empty or too long.
    #[error("the name of a value has {bytes} bytes: expected 1 to {MAX_NAME_BYTES}")]
    Name {
        /// So many.
        bytes: usize,
    },
}

impl SharedValues {
    /// What a call brings along, of which so many bytes are kept at the most.
    pub(super) fn new(
        brought: &ScopedValues,
        session: Session,
        max_bytes: usize,
    ) -> Result<Self, CannotKeep> {
        let values = Self {
            own: Mutex::default(),
            session,
        };
        values.bring(brought, max_bytes)?;
        Ok(values)
    }

    /// Keeps all of these values in the place of what had their names, or none.
    pub(super) fn bring(&self, brought: &ScopedValues, max_bytes: usize) -> Result<(), CannotKeep> {
        if brought.is_empty() {
            return Ok(());
        }
        let mut names = brought.values().flat_map(Map::keys);
        if let Some(name) = names.find(|name| name.is_empty() || name.len() > MAX_NAME_BYTES) {
            return Err(CannotKeep::Name { bytes: name.len() });
        }
        // Weighed once, for there may be as many of them as fit.
        let (mut own, mut session) = (self.own.lock(), self.session.values.lock());
        let (mut new_own, mut new_session) = (own.clone(), session.clone());
        for (scope, members) in brought {
            let values = match scope {
                Scope::Session => &mut new_session,
                Scope::Memory | Scope::Config | Scope::Scratch => {
                    new_own.entry(*scope).or_default()
                }
            };
            values.extend(members.clone());
        }
        let is_of_session = |scope: &Scope| *scope == Scope::Session;
        for (is_touched, bytes) in [
            (brought.keys().any(is_of_session), size(&new_session)),
            (
                !brought.keys().all(is_of_session),
                new_own.values().map(size).sum(),
            ),
        ] {
            if is_touched && bytes > max_bytes {
                return Err(CannotKeep::TooMuch { bytes, max_bytes });
            }
        }
        self.session.bytes.store(held(&new_session), Relaxed);
        (*own, *session) = (new_own, new_session);
        Ok(())
    }

    pub(super) fn all(&self, scope: Scope) -> Map<String, Value> {
        self.with(scope, |values| values.clone())
    }

    pub(super) fn get(&self, scope: Scope, name: &str) -> Option<Value> {
        self.with(scope, |values| values.get(name).cloned())
    }

    /// Whether there was one.
    pub(super) fn remove(&self, scope: Scope, name: &str) -> bool {
        self.with(scope, |values| values.remove(name).is_some())
    }

    /// Keeps a value in the place of what had its name.
    #[cfg(test)]
    fn set(
        &self,
        scope: Scope,
        name: &str,
        value: Value,
        max_bytes: usize,
    ) -> Result<(), CannotKeep> {
        let one = Map::from_iter([(name.to_owned(), value)]);
        self.bring(&ScopedValues::from_iter([(scope, one)]), max_bytes)
    }

    fn with<T>(&self, scope: Scope, work: impl FnOnce(&mut Map<String, Value>) -> T) -> T {
        match scope {
            Scope::Session => work(&mut self.session.values.lock()),
            Scope::Memory | Scope::Config | Scope::Scratch => {
                work(self.own.lock().entry(scope).or_default())
            }
        }
    }
}

/// As JSON, which is what a caller can count.
fn size(values: &Map<String, Value>) -> usize {
    let members = values.iter();
    members
        .map(|(name, value)| name.len() + value.to_string().len())
        .sum()
}

/// How much memory they take, in bytes.
fn held(values: &Map<String, Value>) -> usize {
    let members = values.iter();
    members
        .map(|(name, value)| size_of::<String>() + name.len() + held_by(value))
        .sum()
}

fn held_by(value: &Value) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(elements) => elements.iter().map(held_by).sum(),
        Value::Object(members) => held(members),
    };
    size_of::<Value>() + inside
}

/// The sessions there are, each of one user.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: Mutex<HashMap<(u32, String), (Session, u64)>>,
}

impl Sessions {
    /// The values of a session, which begins when it is first heard of.
    pub(super) fn of(&self, uid: u32, id: &str) -> Session {
        let mut by_id = self.by_id.lock();
        let now = by_id.values().map(|(_, used)| used + 1).max().unwrap_or(0);
        let (session, _) = by_id.remove(&(uid, id.to_owned())).unwrap_or_default();
        let bytes = |(session, _): &(Session, u64)| session.bytes.load(Relaxed);
        let mut held: usize = by_id.values().map(bytes).sum();
        while by_id.len() >= MAX_SESSIONS || held > MAX_SESSIONS_BYTES {
            let oldest = by_id.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            held -= by_id.remove(&oldest).as_ref().map_or(0, bytes);
        }
        by_id.insert((uid, id.to_owned()), (Arc::clone(&session), now));
        session
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_kept_up_to_their_bound() {
        let values = SharedValues::default();
        let set = |scope, name: &str, value| values.set(scope, name, value, 20);
        assert_eq!(set(Scope::Scratch, "a", json!("12345")), Ok(()));
        assert_eq!(set(Scope::Memory, "b", json!("12345")), Ok(()));
        assert_eq!(
            set(Scope::Config, "c", json!("12345")),
            Err(CannotKeep::TooMuch {
                bytes: 24,
                max_bytes: 20
            })
        );
        // What was there stays there, and what is replaced does not count.
        assert!(set(Scope::Scratch, "a", json!("1234567890")).is_err());
        assert_eq!(values.get(Scope::Scratch, "a"), Some(json!("12345")));
        assert_eq!(set(Scope::Scratch, "a", json!("123456789")), Ok(()));
        assert_eq!(values.get(Scope::Config, "c"), None);
        // A session has a bound of its own.
        assert_eq!(set(Scope::Session, "d", json!("1234567890")), Ok(()));
        assert!(values.remove(Scope::Scratch, "a") && !values.remove(Scope::Scratch, "a"));
        assert_eq!(set(Scope::Config, "c", json!("12345")), Ok(()));
        for name in ["", &"x".repeat(257)] {
            let refused = set(Scope::Scratch, name, Value::Null);
            assert_eq!(refused, Err(CannotKeep::Name { bytes: name.len() }));
        }
    }

    #[test]
    fn a_session_is_its_users_and_outlives_calls() {
        let sessions = Sessions::default();
        let of = |uid, id: &str| SharedValues {
            own: Mutex::default(),
            session: sessions.of(uid, id),
        };
        let x = |uid, id: &str| of(uid, id).get(Scope::Session, "x");
        let set = |uid, id: &str, value| of(uid, id).set(Scope::Session, "x", value, 1 << 20);
        assert_eq!(set(1, "a", json!(1)), Ok(()));
        assert_eq!((x(1, "a"), x(2, "a")), (Some(json!(1)), None));
        for n in 0..MAX_SESSIONS {
            sessions.of(1, "a");
            sessions.of(3, &n.to_string());
        }
        assert_eq!(x(1, "a"), Some(json!(1)));
        assert!(sessions.by_id.lock().len() <= MAX_SESSIONS);
        assert!(!sessions.by_id.lock().contains_key(&(2, "a".to_owned())));
        // Two bytes each as JSON.
        let many = || vec![0; 500_000].into();
        for n in 0..10 {
            assert_eq!(set(4, &n.to_string(), many()), Ok(()));
        }
        let known = (0..10).filter(|n| x(4, &n.to_string()).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [6, 7, 8, 9]);
        assert_eq!(x(1, "a"), None);
    }
}
