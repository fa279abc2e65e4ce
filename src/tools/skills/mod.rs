//! Skills as files: `skills/<name>/skill.json` and what it refers to, read and checked. What a
//! skill says stands in `skill.rs`, how it is run in `program.rs` and `steps.rs`.
//!
//! Templates and conditions of a composite see `input` (its members as `input.x` only, so that
//! nothing hides anything) and what earlier steps saved. A group of parallel steps holds no group.
//! Without `calls` a composite may call what its steps call, and any other skill nothing.

mod check;
mod composite;
mod document;
mod fields;
mod files;
mod load;
mod manifest;
mod modes;
mod program;
mod rehearsal;
mod set;
mod skill;
mod steps;
#[cfg(test)]
mod tests;

mod tool;

pub use check::SkillCheck;
pub(crate) use check::check;
pub use load::SkillProblem;
pub(crate) use load::{Loaded, load};
pub(crate) use set::{Found, Known};
pub(crate) use skill::Skill;
pub(crate) use tool::SkillTool;

/// The file that makes a directory a skill.
const FILE: &str = "skill.json";
