use std::sync::OnceLock;

use nix::errno::Errno;
use nix::unistd::{Group, User};

use crate::domain::{Caller, Principal};

/// Who may do what: `[access]`, with names resolved to numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Those who run tools and see their own executions.
    pub callers: Vec<Principal>,
    /// Those who decide what waits for approval.
    pub approvers: Vec<Principal>,
    /// Those who see and cancel everybody's executions.
    pub admins: Vec<Principal>,
    /// Those who read the metrics, and need not be callers for that.
    pub observers: Vec<Principal>,
    /// Names that stand for nobody on this machine. They admit nobody; a log line tells.
    pub unknown: Vec<String>,
}

impl Access {
    /// Whether `caller` is on the list. The daemon's own user always is: it could do anything
    /// the daemon does without asking it.
    pub fn admits(list: &[Principal], caller: &Caller) -> bool {
        caller.uid == own_uid() || Self::lists(list, caller)
    }

    /// Whether `caller` is on the list itself.
    pub fn lists(list: &[Principal], caller: &Caller) -> bool {
        list.iter().any(|principal| caller.is(principal))
    }

    /// Resolves the four lists.
    ///
    /// # Errors
    /// The list that has an entry which is neither `user:NAME` nor `group:NAME`, and what it is.
    pub(super) fn resolve(lists: [&[String]; 4]) -> Result<Self, (&'static str, String)> {
        let mut access = Self::default();
        let [callers, approvers, admins, observers] = lists;
        for (list, entries, resolved) in [
            ("access.callers", callers, &mut access.callers),
            ("access.approvers", approvers, &mut access.approvers),
            ("access.admins", admins, &mut access.admins),
            ("access.observers", observers, &mut access.observers),
        ] {
            for entry in entries {
                match principal(entry).map_err(|detail| (list, detail))? {
                    Some(found) => resolved.push(found),
                    None => access.unknown.push(entry.clone()),
                }
            }
        }
        Ok(access)
    }
}

/// The user the daemon runs as, who does not change.
fn own_uid() -> u32 {
    static OWN: OnceLock<u32> = OnceLock::new();
    *OWN.get_or_init(|| nix::unistd::geteuid().as_raw())
}

/// Whom `entry` (`user:NAME` or `group:NAME`; a number stands for itself) names on this machine,
/// if anybody.
///
/// # Errors
/// An entry that is neither, or one that cannot be looked up now.
pub(crate) fn principal(entry: &str) -> Result<Option<Principal>, String> {
    let failed = |errno| format!("cannot look up {entry:?}: {errno}");
    match entry.split_once(':') {
        Some(("user", name)) if !name.is_empty() => {
            let user = User::from_name(name).map(|user| user.map(|user| user.uid.as_raw()));
            let uid = resolved(user, name).map_err(failed)?;
            Ok(uid.map(|uid| Principal::User {
                name: name.to_owned(),
                uid,
            }))
        }
        Some(("group", name)) if !name.is_empty() => {
            let group = Group::from_name(name).map(|group| group.map(|group| group.gid.as_raw()));
            let gid = resolved(group, name).map_err(failed)?;
            Ok(gid.map(|gid| Principal::Group {
                name: name.to_owned(),
                gid,
            }))
        }
        _ => Err(format!(
            "{entry:?} is no principal: expected \"user:NAME\" or \"group:NAME\""
        )),
    }
}

/// The number of what was looked up by name, or of what is named by its number: that needs nobody to be asked.
fn resolved(looked_up: nix::Result<Option<u32>>, name: &str) -> nix::Result<Option<u32>> {
    match (found(looked_up), name.parse().ok()) {
        (Ok(Some(number)), _) => Ok(Some(number)),
        (Ok(None), number) => Ok(number),
        (Err(_), Some(number)) => Ok(Some(number)),
        (Err(errno), None) => Err(errno),
    }
}

/// A look-up's answer, in which all the errors that mean "there is none" are `None` (getpwnam_r(3)). The
/// others must not be taken for that: a directory service that is down would empty the lists.
///
/// # Errors
/// What kept it from being looked up.
pub(crate) fn found<T>(answer: nix::Result<Option<T>>) -> nix::Result<Option<T>> {
    let means_none = |errno| {
        matches!(
            errno,
            Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM
        )
    };
    match answer {
        Err(errno) if means_none(errno) => Ok(None),
        answered => answered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(callers: &[&str]) -> Result<Access, (&'static str, String)> {
        let callers: Vec<String> = callers.iter().map(|&c| c.to_owned()).collect();
        Access::resolve([&callers, &[], &[], &[]])
    }

    #[test]
    fn names_and_numbers_resolve() {
        let access = access(&["user:root", "group:4242", "user:no-such-user"]).expect("valid");
        assert_eq!(access.unknown, ["user:no-such-user"]);
        let caller = |uid, gid, groups| Caller { uid, gid, groups };
        assert!(Access::admits(&access.callers, &caller(0, 7, vec![])));
        assert!(Access::admits(
            &access.callers,
            &caller(70_000, 4242, vec![])
        ));
        assert!(Access::admits(
            &access.callers,
            &caller(70_000, 7, vec![1, 4242])
        ));
        assert!(!Access::admits(
            &access.callers,
            &caller(70_000, 7, vec![1])
        ));
    }

    #[test]
    fn other_words_are_refused() {
        for entry in ["root", "user:", "role:admin", ""] {
            assert!(access(&[entry]).is_err(), "{entry:?}");
        }
    }

    #[test]
    fn what_cannot_be_looked_up_is_not_taken_for_nobody() {
        assert_eq!(found(Ok(Some(1))), Ok(Some(1)));
        assert_eq!(found::<u32>(Ok(None)), Ok(None));
        for errno in [Errno::ENOENT, Errno::ESRCH, Errno::EBADF, Errno::EPERM] {
            assert_eq!(found::<u32>(Err(errno)), Ok(None));
        }
        for errno in [
            Errno::EIO,
            Errno::ENOMEM,
            Errno::EMFILE,
            Errno::ECONNREFUSED,
        ] {
            assert_eq!(found::<u32>(Err(errno)), Err(errno));
            assert_eq!(resolved(Err(errno), "ann"), Err(errno));
            assert_eq!(resolved(Err(errno), "1000"), Ok(Some(1000)));
        }
    }
}
