//! Everything that can go wrong between this client and the daemon, a refusal by the daemon
//! included. The message names what failed; `hint` says what the reader can do about it.

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::path::PathBuf;

use serde_json::Value;

use super::answer::{Answer, Problem};
use super::sse::FrameTooLarge;
use crate::domain::with_causes;

/// A failure below HTTP, whoever reports it.
pub type TransportError = Box<dyn Error + Send + Sync>;

/// Why there is no answer, or not the one that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody could be reached on the socket.
    #[error("cannot connect to the daemon on `{}`: {source}", socket.display())]
    CannotConnect {
        /// The socket that was tried.
        socket: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The connection broke, or what came over it is not HTTP.
    // hyper keeps what happened in its causes and names only itself.
    #[error("lost the daemon on `{}` during {during}: {}", socket.display(), with_causes(source.as_ref()))]
    Interrupted {
        /// The socket of the connection.
        socket: PathBuf,
        /// The request, as `METHOD path`.
        during: String,
        /// What broke.
        source: TransportError,
    },
    /// The stream of events ended without a result: the daemon has gone, or has given up the
    /// connection.
    #[error("the daemon went away before {}", expected_next(execution_id.as_deref()))]
    StreamCutShort {
        /// The execution whose result is missing, as far as its id had come.
        execution_id: Option<String>,
        /// What broke; nothing when the stream just ended.
        source: Option<TransportError>,
    },
    /// The daemon understood and said no.
    #[error("{}", describe(answer))]
    Refused {
        /// The whole refusal.
        answer: Box<Answer>,
    },
    /// The answer is not one that this daemon's API gives.
    #[error("unexpected answer to {during}: status {status}, {found}")]
    UnexpectedAnswer {
        /// The request, as `METHOD path`.
        during: String,
        /// The HTTP status.
        status: u16,
        /// What there was in place of the expected.
        found: String,
    },
    /// The answer is of the right kind, but its JSON cannot be read.
    #[error("cannot read the answer to {during}: {source}")]
    Malformed {
        /// The request, as `METHOD path`.
        during: String,
        /// Where the JSON and the expectation part.
        source: serde_json::Error,
    },
    /// An answer is larger than any that the API gives.
    #[error("the answer to {during} is larger than {limit} bytes")]
    AnswerTooLarge {
        /// The request, as `METHOD path`.
        during: String,
        /// What this client takes.
        limit: usize,
    },
    /// The stream of events carries one that is larger than any that the API gives.
    #[error("cannot follow the events of the daemon: {source}")]
    EventTooLarge {
        /// The limit that was hit.
        #[from]
        source: EventTooLarge,
    },
    /// The call cannot be put into a request.
    #[error("cannot send {what}: {source}")]
    Unsendable {
        /// The part that does not fit.
        what: &'static str,
        /// Why it does not fit.
        source: TransportError,
    },
}

/// An event beyond the bound of the parser.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EventTooLarge(#[from] FrameTooLarge);

impl From<FrameTooLarge> for ClientError {
    fn from(source: FrameTooLarge) -> Self {
        Self::EventTooLarge {
            source: EventTooLarge(source),
        }
    }
}

impl ClientError {
    /// What the reader can do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        let known = match self {
            Self::CannotConnect { source, .. } => connect_hint(source.kind()),
            Self::Interrupted { .. } | Self::StreamCutShort { .. } => {
                Some("see `journalctl -u shelly-executor` for what happened to it")
            }
            Self::Refused { answer } => {
                let problem = answer.problem.as_ref()?;
                let id = answer.outcome.execution_id.as_deref();
                return refusal_hint(problem, id.unwrap_or("ID"));
            }
            Self::UnexpectedAnswer { .. } | Self::Malformed { .. } => {
                Some("is this the socket of a shelly-executor of about the same version?")
            }
            Self::AnswerTooLarge { .. } | Self::EventTooLarge { .. } => Some(
                "lower `max_output_bytes` in executor.toml, and read the full output under the execution's id",
            ),
            Self::Unsendable { .. } => None,
        };
        known.map(Cow::Borrowed)
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a foreign enum without end; the rest has no better advice than its own message"
)]
fn connect_hint(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::NotFound => Some(
            "start it with `systemctl start shelly-executor`, or name its socket with --socket or SHELLY_SOCKET",
        ),
        io::ErrorKind::PermissionDenied => Some(
            "callers are in the group `shelly`: `sudo usermod -aG shelly \"$USER\"`, then log in again",
        ),
        io::ErrorKind::ConnectionRefused => Some(
            "nobody listens there any more, or it is no socket: see `systemctl status shelly-executor`",
        ),
        _ => None,
    }
}

/// Whether the policy has decided, by a rule or by its default.
fn is_the_policy_s(judgement: &Value) -> bool {
    ["rule", "source"]
        .iter()
        .any(|member| !judgement[member].is_null())
}

/// What can be done about a call of that id that was refused, or ended as a problem.
fn refusal_hint(problem: &Problem, id: &str) -> Option<Cow<'static, str>> {
    let known = match problem.code.as_str() {
        "unknown_tool" => Some(
            "`shellyctl tools` lists the tools, `shellyctl status` the skills that cannot be used",
        ),
        "unknown_execution" => Some(
            "`shellyctl history -n 1000` lists those that you may see, with their ids of 36 characters",
        ),
        "invalid_input" => Some("`shellyctl tools NAME` shows what a tool takes"),
        // What a tool refuses by itself is of no rule.
        "permission_denied" if problem.judgement.as_ref().is_some_and(is_the_policy_s) => {
            Some("`shellyctl policy explain` shows which rule that is, and what it lets pass")
        }
        "approval_expired" | "user_rejected" => {
            return Some(format!("`shellyctl show {id}` shows what was asked about").into());
        }
        "timeout" => Some(
            "`--timeout` of `exec` and `call` gives it longer, up to the daemon's `max_timeout_secs`",
        ),
        "approval_decided" => Some("`shellyctl approvals --all` shows what was decided"),
        "queue_full" => Some("try again in a moment"),
        "shutting_down" if problem.duration_ms.is_some() => {
            return Some(format!("it has run in part: `shellyctl show {id}` shows how far").into());
        }
        "shutting_down" => Some("try again when `systemctl status shelly-executor` says it is up"),
        _ => None,
    };
    known.map(Cow::Borrowed)
}

fn expected_next(execution_id: Option<&str>) -> String {
    execution_id.map_or_else(
        || "the execution had its id".to_owned(),
        |id| format!("execution `{id}` ended; what became of it is unknown"),
    )
}

fn describe(answer: &Answer) -> String {
    answer.problem.as_ref().map_or_else(
        || format!("the daemon answered {}", answer.status),
        |problem| {
            // The daemon's detail names the places of `errors` already.
            let detail = problem.detail.as_deref().unwrap_or(&problem.title);
            format!("{detail} ({})", problem.code)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cannot_connect(kind: io::ErrorKind) -> ClientError {
        ClientError::CannotConnect {
            socket: "/run/x.sock".into(),
            source: kind.into(),
        }
    }

    #[test]
    fn each_way_not_to_connect_has_its_own_hint() {
        let hint = |kind| cannot_connect(kind).hint().unwrap_or_default();
        assert!(hint(io::ErrorKind::NotFound).contains("systemctl start"));
        assert!(hint(io::ErrorKind::PermissionDenied).contains("group `shelly`"));
        assert!(hint(io::ErrorKind::ConnectionRefused).contains("nobody listens"));
        assert!(
            cannot_connect(io::ErrorKind::NotFound)
                .to_string()
                .contains("`/run/x.sock`")
        );
    }

    #[test]
    fn a_refusal_says_detail_and_code_and_each_thing_once() {
        let body = r#"{"title": "t", "detail": "the input is invalid: /command: is required", "code": "invalid_input",
            "errors": [{"pointer": "/command", "detail": "is required"}]}"#;
        let answer = Box::new(Answer::parse(422, body.into()).expect("succeeds"));
        let error = ClientError::Refused { answer };
        assert_eq!(
            error.to_string(),
            "the input is invalid: /command: is required (invalid_input)"
        );
        let hint = |code: &str, judgement: Option<serde_json::Value>| {
            let problem = serde_json::json!({"title": "t", "code": code, "judgement": judgement});
            refusal_hint(&serde_json::from_value(problem).expect("a problem"), "0199")
        };
        assert_eq!(hint("access_denied", None), None, "its detail says it");
        let judged = hint(
            "permission_denied",
            Some(serde_json::json!({"rule": "bash"})),
        );
        assert!(judged.is_some_and(|hint| hint.contains("policy explain")));
        assert_eq!(hint("permission_denied", None), None, "a hook said it");
        let own = Some(serde_json::json!({"rule": null, "source": null}));
        assert_eq!(hint("permission_denied", own), None, "a tool said it");
        let rejected = hint("user_rejected", None).expect("a hint");
        assert!(rejected.contains("`shellyctl show 0199`"), "{rejected}");
    }
}
