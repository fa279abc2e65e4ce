use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{micros, words};

words! {
    /// The stages every call goes through, in their order.
    #[derive(PartialOrd, Ord, ToSchema)]
    pub enum Stage {
        /// The tool is found.
        Discovery = "discovery",
        /// The input is held against the tool's schema.
        Validation = "validation",
        /// The policy judges it.
        Permission = "permission",
        /// Who may approve it is asked.
        Confirmation = "confirmation",
        /// The tool does it.
        Execution = "execution",
        /// What it said is made ready for the model and for people.
        Formatting = "formatting",
    }
}

impl Stage {
    /// Its place among them, which the ledger keeps for it.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// The one with this number, if there is one.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// On which side of a stage. Ordered as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Before it has begun.
    Before,
    /// When it has let the call through.
    After,
}

/// A place between what the stages do. Ordered as a call comes by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The stage it belongs to.
    pub stage: Stage,
    /// On which side.
    pub when: When,
}

impl Point {
    /// Before a stage.
    pub const fn before(stage: Stage) -> Self {
        let when = When::Before;
        Self { stage, when }
    }

    /// After a stage.
    pub const fn after(stage: Stage) -> Self {
        let when = When::After;
        Self { stage, when }
    }

    /// Whether nothing has been run there yet, so that a call can still be refused or changed.
    pub fn precedes_the_run(self) -> bool {
        self <= Self::before(Stage::Execution)
    }
}

/// When an execution was in a stage. Kept as three numbers: there are six of them for each, which in words
/// cost as much as all else that is kept of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Kept", try_from = "Kept")]
pub struct StageTimes {
    /// Which.
    pub stage: Stage,
    /// When it began.
    pub started_at: SystemTime,
    /// When it ended; `None` until then.
    pub ended_at: Option<SystemTime>,
}

/// As it is kept, in microseconds since 1970.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Kept {
    /// The stage's number, beginning, end.
    Numbers(u8, u64, Option<u64>),
    /// The same in a ledger before version 7.
    Words {
        stage: Stage,
        started_at: u64,
        ended_at: Option<u64>,
    },
}

impl From<StageTimes> for Kept {
    fn from(times: StageTimes) -> Self {
        Self::Numbers(
            times.stage.number(),
            micros::of(times.started_at),
            times.ended_at.map(micros::of),
        )
    }
}

impl TryFrom<Kept> for StageTimes {
    type Error = String;

    fn try_from(kept: Kept) -> Result<Self, String> {
        let (stage, started_at, ended_at) = match kept {
            Kept::Numbers(number, started_at, ended_at) => {
                let stage = Stage::from_number(number);
                let stage = stage.ok_or_else(|| format!("no stage has the number {number}"))?;
                (stage, started_at, ended_at)
            }
            Kept::Words {
                stage,
                started_at,
                ended_at,
            } => (stage, started_at, ended_at),
        };
        Ok(Self {
            stage,
            started_at: micros::at(started_at),
            ended_at: ended_at.map(micros::at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_is_where_its_number_says() {
        for (number, stage) in (0..).zip(Stage::ALL) {
            assert_eq!(stage.number(), number);
            assert_eq!(Stage::from_number(number), Some(stage));
        }
        assert_eq!(Stage::from_number(6), None);
    }

    #[test]
    fn times_are_read_as_they_are_written_and_as_they_once_were() {
        let times = |ended_at: Option<u64>| StageTimes {
            stage: Stage::Permission,
            started_at: micros::at(1_700_000_000_000_001),
            ended_at: ended_at.map(micros::at),
        };
        for (text, expected) in [
            (
                "[2,1700000000000001,1700000000000003]",
                times(Some(1_700_000_000_000_003)),
            ),
            ("[2,1700000000000001,null]", times(None)),
        ] {
            let written = serde_json::to_string(&expected);
            assert_eq!(written.expect("JSON"), text);
            let read: StageTimes = serde_json::from_str(text).expect(text);
            assert_eq!(read, expected);
        }
        let once = r#"{"stage":"permission","started_at":1700000000000001,"ended_at":null}"#;
        let read: StageTimes = serde_json::from_str(once).expect(once);
        assert_eq!(read, times(None));
        let unknown = serde_json::from_str::<StageTimes>("[6,1,2]").expect_err("no stage");
        assert!(unknown.to_string().contains('6'), "{unknown}");
    }
}
