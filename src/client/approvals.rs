//! What waits for a person's word, and giving it.

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Client;
use super::documents::{Received, RecordedJudgement};
use super::error::ClientError;
use super::transport::Ask;

/// A question to people whether a call may run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Approval {
    /// Its id, which is not the execution's.
    pub id: String,
    /// The execution that waits.
    pub execution_id: String,
    /// The tool that was called.
    #[serde(default)]
    pub tool: String,
    /// Its version; empty where it has none.
    #[serde(default)]
    pub tool_version: String,
    /// The tools that led to the call, the outermost first.
    #[serde(default)]
    pub chain: Vec<String>,
    /// What was asked for, in a line.
    #[serde(default)]
    pub summary: String,
    /// The tool's input, what is secret masked.
    #[serde(default)]
    pub input: Value,
    /// The directory that the call named.
    pub working_dir: Option<String>,
    /// The variables that the call set, without their values.
    #[serde(default)]
    pub env_names: Vec<String>,
    /// Its standard input, what is secret masked.
    pub stdin: Option<String>,
    /// The time limit it asked for, in seconds.
    pub timeout_secs: Option<f64>,
    /// `keep` where the processes it leaves behind go on.
    pub background: Option<String>,
    /// `untrusted` where it would run in a sandbox.
    pub risk_level: Option<String>,
    /// The directory of the host's that it could use there.
    pub workspace: Option<String>,
    /// The values that it would find, by scope, what is secret masked.
    #[serde(default)]
    pub context: Value,
    /// Who called.
    pub caller_uid: Option<u32>,
    /// What exactly is approved, as a hash.
    pub digest: Option<String>,
    /// When the question arose (RFC 3339, UTC).
    pub created_at: Option<String>,
    /// When nobody needs to answer any more.
    pub expires_at: Option<String>,
    /// `pending`, `approved`, `denied`, `expired`, `withdrawn` or `used`.
    pub status: String,
    /// The rules that an approval can be remembered as.
    #[serde(default)]
    pub remember_rules: Vec<String>,
    /// What the policy said.
    pub judgement: Option<RecordedJudgement>,
    /// Who decided.
    pub decided_by: Option<u32>,
    /// When that was.
    pub decided_at: Option<String>,
    /// Why, if they said.
    pub reason: Option<String>,
    /// How long the decision is remembered: `once`, `session` or `always`.
    pub remember: Option<String>,
    /// Whether something of it was too long for the list that it is from: [`Client::approval`] has all of it.
    #[serde(default)]
    pub truncated: bool,
}

impl Approval {
    /// Whether it still waits for somebody's word.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.status == "pending"
    }
}

/// Approvals, oldest first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Approvals {
    /// The approvals.
    pub approvals: Vec<Received<Approval>>,
}

/// What somebody decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The call may run.
    Approve,
    /// It may not.
    Deny,
}

/// How long a decision is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Remember {
    /// For this call alone.
    Once,
    /// Until the caller's session ends.
    Session,
    /// From now on.
    Always,
}

/// A decision with what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Resolution {
    /// What was decided.
    pub decision: Decision,
    /// Why; the caller is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long it is remembered; the daemon's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remember: Option<Remember>,
}

impl Resolution {
    /// A bare decision.
    #[must_use]
    pub const fn new(decision: Decision) -> Self {
        Self {
            decision,
            reason: None,
            remember: None,
        }
    }
}

impl Client {
    /// The approvals that are pending; with [`Client::all_approvals`] also those that were.
    ///
    /// # Errors
    /// As [`Client::tools`].
    pub async fn approvals(&self) -> Result<Received<Approvals>, ClientError> {
        self.read(Ask::new(Method::GET, &["approvals"])).await
    }

    /// All approvals that the daemon still knows, decided ones too.
    ///
    /// # Errors
    /// As [`Client::tools`].
    pub async fn all_approvals(&self) -> Result<Received<Approvals>, ClientError> {
        let ask = Ask::new(Method::GET, &["approvals"]);
        self.read(ask.param("all", "true")).await
    }

    /// One approval.
    ///
    /// # Errors
    /// As [`Client::tools`]; an unknown id is [`ClientError::Refused`].
    pub async fn approval(&self, id: &str) -> Result<Received<Approval>, ClientError> {
        self.read(Ask::new(Method::GET, &["approvals", id])).await
    }

    /// Decides an approval, and comes back with it as it is then.
    ///
    /// # Errors
    /// As [`Client::tools`]; [`ClientError::Refused`] where it is decided already, or is not for
    /// this user to decide.
    pub async fn resolve(
        &self,
        id: &str,
        resolution: &Resolution,
    ) -> Result<Received<Approval>, ClientError> {
        let body = super::body(resolution, "the decision")?;
        let ask = Ask::new(Method::POST, &["approvals", id]);
        self.read(ask.json(body)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bare_decision_leaves_the_rest_to_the_daemon() {
        let bare = Resolution::new(Decision::Deny);
        assert_eq!(
            serde_json::to_value(&bare).expect("succeeds"),
            json!({"decision": "deny"})
        );
        let full = Resolution {
            reason: Some("fine".to_owned()),
            remember: Some(Remember::Always),
            ..Resolution::new(Decision::Approve)
        };
        assert_eq!(
            serde_json::to_value(&full).expect("succeeds"),
            json!({"decision": "approve", "reason": "fine", "remember": "always"})
        );
    }
}
