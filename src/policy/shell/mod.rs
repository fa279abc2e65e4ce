//! Reading shell text: a strict reader that may allow, and what it must not allow.

pub mod hazards;
pub mod strict;
