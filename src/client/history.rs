//! Executions that have been: listing them, running one again, forgetting them.

use hyper::{Method, StatusCode};
use serde::Deserialize;

use super::Client;
use super::documents::{OutputStream, Received};
use super::error::ClientError;
use super::events::EventStream;
use super::output::Output;
use super::transport::Ask;

/// Which executions to list; all that the caller may see where nothing is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Those that came in at this time or later (RFC 3339).
    pub since: Option<String>,
    /// Those that came in before this time (RFC 3339).
    pub until: Option<String>,
    /// Those of this tool.
    pub tool: Option<String>,
    /// Those of this status.
    pub status: Option<String>,
    /// Those of this user.
    pub caller: Option<u32>,
    /// Those of this trace.
    pub trace_id: Option<String>,
    /// Those in which these words occur.
    pub text: Option<String>,
    /// How many at most, from 1 to 1000; the daemon's default when absent.
    pub limit: Option<u32>,
    /// Where the list before this one ended.
    pub cursor: Option<String>,
}

/// A stretch of the history, newest first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Executions {
    /// The executions.
    pub executions: Vec<Received<Summary>>,
    /// The cursor of the stretch that follows, if there is more.
    pub next: Option<String>,
}

/// An execution as a list has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// The execution's id.
    pub execution_id: String,
    /// How far it is, or how it ended.
    pub status: String,
    /// The tool that was called.
    pub tool: String,
    /// What was asked for, in a line.
    #[serde(default)]
    pub summary: String,
    /// Who called.
    pub caller_uid: Option<u32>,
    /// When the call came in (RFC 3339, UTC).
    pub created_at: String,
    /// When the process started.
    pub started_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// From the start of the process to its end.
    pub duration_ms: Option<u64>,
    /// How the process ended: `0`, `SIGKILL`, `timeout`, `cancelled`.
    pub exit: Option<String>,
    /// The execution that it repeats.
    pub replay_of: Option<String>,
}

/// What became of a wish to forget.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Forgotten {
    /// How many records are gone.
    pub deleted: u64,
}

impl Client {
    /// The executions that there are and were, newest first, a stretch at a time.
    ///
    /// # Errors
    /// As [`Client::tools`].
    pub async fn executions(
        &self,
        filter: &HistoryFilter,
    ) -> Result<Received<Executions>, ClientError> {
        let caller = filter.caller.map(|uid| uid.to_string());
        let limit = filter.limit.map(|limit| limit.to_string());
        let mut ask = Ask::new(Method::GET, &["executions"]);
        for (name, value) in [
            ("since", &filter.since),
            ("until", &filter.until),
            ("tool", &filter.tool),
            ("status", &filter.status),
            ("caller", &caller),
            ("trace_id", &filter.trace_id),
            ("text", &filter.text),
            ("limit", &limit),
            ("cursor", &filter.cursor),
        ] {
            ask = ask.maybe(name, value.as_deref());
        }
        self.read(ask).await
    }

    /// Forgets every execution that has ended. The audit trail stays.
    ///
    /// # Errors
    /// As [`Client::tools`]; for admins only.
    pub async fn forget_executions(&self) -> Result<Received<Forgotten>, ClientError> {
        self.read(Ask::new(Method::DELETE, &["executions"])).await
    }

    /// Makes the call of an execution once more and follows it as [`Client::stream`] does.
    ///
    /// # Errors
    /// As [`Client::stream`]; an unknown id is [`ClientError::Refused`].
    pub async fn replay(&self, id: &str) -> Result<EventStream, ClientError> {
        let ask = Ask::new(Method::POST, &["executions", id, "replay"]);
        Ok(EventStream::new(self.event_stream(ask).await?))
    }

    /// The raw bytes an execution wrote to `stream`, and those that it goes on to write, until it
    /// ends.
    ///
    /// # Errors
    /// As [`Client::tools`]; an unknown id is [`ClientError::Refused`].
    pub async fn follow_output(
        &self,
        id: &str,
        stream: OutputStream,
    ) -> Result<Output, ClientError> {
        let ask = Ask::new(Method::GET, &["executions", id, "output"])
            .param("stream", stream.name())
            .param("follow", "true");
        let sent = self.transport.send(ask).await?;
        Ok(Output::new(sent.expect(&[StatusCode::OK]).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_execution_of_a_list_keeps_its_letters() {
        let json = r#"{"executions": [{"execution_id": "1",  "status": "success", "tool": "bash", "summary": "df -h",
            "caller_uid": 0, "created_at": "2026-11-22T09:01:02.003Z", "exit": "0", "new": {}}], "next": null}"#;
        let page = Received::<Executions>::parse(json.into()).expect("succeeds");
        let first = &page.executions[0];
        assert_eq!(first.exit.as_deref(), Some("0"));
        assert!(
            first.json.starts_with(r#"{"execution_id": "1",  "#),
            "{}",
            first.json
        );
        assert!(first.json.ends_with(r#""new": {}}"#), "{}", first.json);
    }
}
