//! Who may do what: a policy file into an immutable [`Policy`], a [`Question`] into a
//! [`Judgement`]. Pure decisions: nothing here runs, opens or changes anything. Shell text is
//! read in `shell/`: a strict reader that may allow, a loose one that finds what to refuse.

mod error;
mod examples;
mod explain;
mod file;
mod glob;
mod input;
mod judge;
mod paths;
mod pattern;
mod question;
mod remember;
mod remembered;
mod remembered_file;
mod rule;
mod scripts;
pub(crate) mod shell;
#[cfg(test)]
mod tests;
mod tools;

pub use error::PolicyError;
pub use examples::Example;
pub use file::{
    BUILT_IN_POLICY, GUARDED_POLICY, OBSERVE_POLICY, OPEN_POLICY, SHIPPED_POLICY, Source,
};
pub use judge::Policy;
pub use question::{Judgement, NamedPath, Question, RuleSource, Verdict};
pub use remembered::Remembered;
pub use shell::{
    Command, Fence, Reading, Unreadable, ansi_c, hazards, read_shell, read_shell_strictly,
};
pub use tools::UnknownTool;
