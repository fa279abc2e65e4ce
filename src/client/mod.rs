//! The public client of the daemon: shellyctl, the tests, the daemon's own probe and brains share
//! it. One method per route, typed answers that also keep the JSON as it came. It sets no time
//! limits: wrap a future in `tokio::time::timeout` where waiting must end. Dropping the future or
//! the stream of a call hangs up.

mod answer;
mod approvals;
mod audit;
mod call;
mod documents;
mod error;
mod events;
mod feed;
mod frames;
mod history;
mod output;
mod sse;
mod transport;

use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{ACCEPT, HeaderName, HeaderValue, RANGE};
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::domain::{EVENT_TYPES, Status, counted, misleads, parse_timestamp};
pub use answer::{
    Answer, Connection, Kill, LeftBehind, Outcome, Problem, Sandboxed, SchemaError, Signal, Usage,
};
pub use approvals::{Approval, Approvals, Decision, Remember, Resolution};
pub use audit::{AuditHead, AuditReport};
pub use call::{Background, Call, read_json};
pub use documents::{
    Child, GivenApproval, Health, HealthProblem, Judgement, OutputStream, PolicyHealth, Received,
    Record, RecordedJudgement, RuleSource, SandboxHealth, StageTimes, ToolDefinition, ToolDetails,
};
pub use error::{ClientError, EventTooLarge, TransportError};
pub use events::{Event, EventKind, EventStream};
pub use feed::{Feed, FeedFilter, FeedItem, Happening};
pub use history::{Executions, Forgotten, HistoryFilter, Summary};
pub use output::Output;

use transport::{Ask, Head, Transport};

use crate::config::refuse_foreign;

/// Where an installed daemon listens.
pub const DEFAULT_SOCKET: &str = "/run/shelly-executor/executor.sock";

/// The socket when nobody names one: that of a daemon of this user's own where there is one.
fn default_socket() -> PathBuf {
    own_or_installed(crate::config::default_socket())
}

/// Without a home a daemon of one's own has its place below `/tmp`, where somebody else may have made it first and
/// listen. Ours does not begin there, either, and says why.
fn own_or_installed(own: PathBuf) -> PathBuf {
    if own.exists() && refuse_foreign(&own, "--socket").is_ok() {
        own
    } else {
        DEFAULT_SOCKET.into()
    }
}

/// Where the skills are of a daemon that runs with the usual configuration file.
pub fn default_skills_dir() -> PathBuf {
    crate::config::skills_dir(&crate::config::Places::for_this_user().config)
}

/// Whether a tool that is built in is called so: no skill can be.
pub fn is_built_in(tool: &str) -> bool {
    crate::domain::BUILT_IN_TOOLS.contains(&tool)
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A client of the daemon behind one socket. Cheap to clone; clones share their connections.
///
/// ```no_run
/// # async fn example() -> Result<(), shelly_executor::client::ClientError> {
/// use shelly_executor::client::{Call, Client};
///
/// let client = Client::from_env_or_default();
/// let answer = client.execute(&Call::bash("df -h")).await?;
/// println!("{}", answer.outcome.content);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    transport: Transport,
}

impl Client {
    /// A client of the daemon that listens on `socket`. Connects with the first request.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            transport: Transport::new(socket.into()),
        }
    }

    /// A client of the daemon on `SHELLY_SOCKET`, or where this user's daemon listens when that is
    /// unset or empty: the installed one's socket, unless there is one of the user's own.
    #[must_use]
    pub fn from_env_or_default() -> Self {
        Self::new(crate::config::socket_from_environment().unwrap_or_else(default_socket))
    }

    /// The socket that `SHELLY_SOCKET` names, if it names one.
    #[must_use]
    pub fn socket_from_env() -> Option<PathBuf> {
        crate::config::socket_from_environment()
    }

    /// The socket this client talks to.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.transport.socket()
    }

    /// All tools, in the shape of a Messages request.
    ///
    /// # Errors
    /// When the daemon cannot be reached, refuses, or answers something else.
    pub async fn tools(&self) -> Result<Received<Vec<ToolDefinition>>, ClientError> {
        self.read(Ask::new(Method::GET, &["tools"])).await
    }

    /// Everything about one tool.
    ///
    /// # Errors
    /// As [`Client::tools`]; an unknown tool is [`ClientError::Refused`].
    pub async fn tool(&self, name: &str) -> Result<Received<ToolDetails>, ClientError> {
        self.read(Ask::new(Method::GET, &["tools", name])).await
    }

    /// Everything about one version of a tool.
    ///
    /// # Errors
    /// As [`Client::tool`].
    pub async fn tool_version(
        &self,
        name: &str,
        version: &str,
    ) -> Result<Received<ToolDetails>, ClientError> {
        let ask = Ask::new(Method::GET, &["tools", name]).param("version", version);
        self.read(ask).await
    }

    /// How the daemon is.
    ///
    /// # Errors
    /// As [`Client::tools`].
    pub async fn health(&self) -> Result<Received<Health>, ClientError> {
        self.read(Ask::new(Method::GET, &["health"])).await
    }

    /// The daemon's description of its API.
    ///
    /// # Errors
    /// As [`Client::tools`].
    pub async fn openapi(&self) -> Result<Received<Value>, ClientError> {
        self.read(Ask::new(Method::GET, &["openapi.json"])).await
    }

    /// What the policy says of a call to which the tools `called_by` had led, the outermost first. It is
    /// not run.
    ///
    /// # Errors
    /// As [`Client::tools`]; what would be refused before the policy is asked is
    /// [`ClientError::Refused`].
    pub async fn explain(
        &self,
        call: &Call,
        called_by: &[String],
    ) -> Result<Received<Judgement>, ClientError> {
        let ask = Ask::new(Method::POST, &["permissions", "explain"]);
        let ask = match called_by {
            [] => ask,
            chain => ask.param("called_by", &chain.join(",")),
        };
        self.read(ask.json(body(call, "the call")?)).await
    }

    /// Makes a call and waits for its end. Whatever the daemon says about the call is an
    /// [`Answer`], a refusal too. Dropping the future hangs up, and that cancels the execution
    /// unless the call has an idempotency key.
    ///
    /// # Errors
    /// When the daemon cannot be reached, or what comes back is not an answer.
    pub async fn execute(&self, call: &Call) -> Result<Answer, ClientError> {
        self.transport.send(post(call)?).await?.answer().await
    }

    /// Makes a call and follows it as it happens. Dropping the stream hangs up, and that cancels
    /// the execution.
    ///
    /// # Errors
    /// As [`Client::tools`]; what is refused before the start is [`ClientError::Refused`].
    pub async fn stream(&self, call: &Call) -> Result<EventStream, ClientError> {
        Ok(EventStream::new(self.event_stream(post(call)?).await?))
    }

    /// The record of an execution. With `wait` it is held back until the end, or for that long (60
    /// s at most).
    ///
    /// # Errors
    /// As [`Client::tools`]; an unknown id is [`ClientError::Refused`].
    pub async fn execution(
        &self,
        id: &str,
        wait: Option<Duration>,
    ) -> Result<Received<Record>, ClientError> {
        let ask = Ask::new(Method::GET, &["executions", id]);
        self.read(match wait {
            Some(wait) => ask.param("wait", &wait.as_secs_f64().to_string()),
            None => ask,
        })
        .await
    }

    /// The raw bytes an execution wrote to `stream`: all that is kept, or a range like `1024..`. A
    /// range that begins at or behind the end is no error but an [`Output`] without bytes.
    ///
    /// # Errors
    /// As [`Client::tools`]; an unknown id is [`ClientError::Refused`].
    pub async fn output(
        &self,
        id: &str,
        stream: OutputStream,
        range: impl RangeBounds<u64>,
    ) -> Result<Output, ClientError> {
        let unsendable = |source| ClientError::Unsendable {
            what: "the range",
            source,
        };
        let ask =
            Ask::new(Method::GET, &["executions", id, "output"]).param("stream", stream.name());
        let ask = match output::range_header(range).map_err(|error| unsendable(error.into()))? {
            Some(range) => ask.header(RANGE, header_value("the range", &range)?),
            None => ask,
        };
        let taken = [
            StatusCode::OK,
            StatusCode::PARTIAL_CONTENT,
            StatusCode::RANGE_NOT_SATISFIABLE,
        ];
        Ok(Output::new(
            self.transport.send(ask).await?.expect(&taken).await?,
        ))
    }

    /// Cancels an execution, and comes back with its final record once its processes are dead. One
    /// that has already ended is left as it is.
    ///
    /// # Errors
    /// As [`Client::tools`]; an unknown id is [`ClientError::Refused`].
    pub async fn cancel(&self, id: &str) -> Result<Received<Record>, ClientError> {
        self.read(Ask::new(Method::DELETE, &["executions", id]))
            .await
    }

    /// Asks for a stream of events.
    async fn event_stream(&self, ask: Ask) -> Result<Head, ClientError> {
        let ask = ask.header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let sent = self.transport.send(ask).await?;
        let head = sent.expect(&[StatusCode::OK]).await?;
        if head.media_type() != "text/event-stream" {
            let found = format!("`{}` in place of `text/event-stream`", head.media_type());
            return Err(ClientError::UnexpectedAnswer {
                during: head.during,
                status: 200,
                found,
            });
        }
        Ok(head)
    }

    async fn read<T: for<'de> Deserialize<'de>>(
        &self,
        ask: Ask,
    ) -> Result<Received<T>, ClientError> {
        parse(
            self.transport
                .send(ask)
                .await?
                .expect(&[StatusCode::OK])
                .await?,
        )
        .await
    }
}

async fn parse<T: for<'de> Deserialize<'de>>(head: Head) -> Result<Received<T>, ClientError> {
    let during = head.during.clone();
    Received::parse(head.text().await?).map_err(|source| ClientError::Malformed { during, source })
}

fn body(document: &impl Serialize, what: &'static str) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(document).map_err(|source| ClientError::Unsendable {
        what,
        source: source.into(),
    })
}

fn post(call: &Call) -> Result<Ask, ClientError> {
    let mut ask = Ask::new(Method::POST, &["execute"]).json(body(call, "the call")?);
    if let Some(key) = &call.idempotency_key {
        ask = ask.header(IDEMPOTENCY_KEY, header_value("the idempotency key", key)?);
    }
    if let Some(traceparent) = &call.traceparent {
        ask = ask.header(TRACEPARENT, header_value("the traceparent", traceparent)?);
    }
    Ok(ask)
}

fn header_value(what: &'static str, value: &str) -> Result<HeaderValue, ClientError> {
    HeaderValue::from_str(value).map_err(|source| ClientError::Unsendable {
        what,
        source: source.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_that_somebody_else_may_have_made_is_not_ones_own() {
        let top = std::env::temp_dir().join(format!("shelly-client-{}", std::process::id()));
        let listen = |dir: &str, mode| {
            let dir = top.join(dir);
            fs::create_dir_all(&dir).expect("made");
            fs::set_permissions(&dir, Permissions::from_mode(mode)).expect("ours");
            let socket = dir.join("executor.sock");
            UnixListener::bind(&socket).expect("bound");
            socket
        };
        // Everybody may write to it, as to `/tmp`.
        listen("", 0o1777);
        let ours = listen("ours", 0o700);
        let open = listen("open", 0o777);
        let found = [&ours, &open, &top.join("none")].map(|own| own_or_installed(own.clone()));
        fs::remove_dir_all(&top).expect("ours");
        assert_eq!(found, [ours, DEFAULT_SOCKET.into(), DEFAULT_SOCKET.into()]);
    }
}
