/// Who is calling, in the kernel's words: the credentials the peer of the socket had when it
/// connected (`SO_PEERCRED`, `SO_PEERGROUPS`; see unix(7) and socket(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Effective user id.
    pub uid: u32,
    /// Primary (effective) group id.
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Vec<u32>,
}

impl Caller {
    /// This process itself, for calls that did not come through a socket.
    pub fn this_process() -> Self {
        Self {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            groups: Vec::new(),
        }
    }

    /// Whether this caller is the user or a member of the group that `principal` names.
    pub fn is(&self, principal: &Principal) -> bool {
        match principal {
            Principal::User { uid, .. } => self.uid == *uid,
            Principal::Group { gid, .. } => self.gid == *gid || self.groups.contains(gid),
        }
    }
}

/// A user or a group that an access list names, resolved to its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// `"user:NAME"`.
    User {
        /// As written in the configuration.
        name: String,
        /// The number it stands for.
        uid: u32,
    },
    /// `"group:NAME"`.
    Group {
        /// As written in the configuration.
        name: String,
        /// The number it stands for.
        gid: u32,
    },
}
