//! The audit trail: whether it is whole, and all of it.

use hyper::{Method, StatusCode};
use serde::Deserialize;

use super::Client;
use super::documents::Received;
use super::error::ClientError;
use super::output::Output;
use super::transport::Ask;

/// Whether the trail is what was once written, and what is kept is what it says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct AuditReport {
    /// Whether it is.
    pub intact: bool,
    /// How many records it has.
    pub records: u64,
    /// How many executions are kept as it says.
    #[serde(default)]
    pub executions: u64,
    /// Its last record.
    pub head: Option<AuditHead>,
    /// Where it is broken, and how.
    pub problem: Option<String>,
}

/// A record of the trail by its number and hash. Kept elsewhere, it proves that nothing before it
/// has been changed or cut away.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct AuditHead {
    /// Its number.
    pub number: u64,
    /// Its hash, in hexadecimal.
    pub hash: String,
}

impl Client {
    /// Goes through the audit trail. `heads` were told before, each as `NUMBER:HASH`; the trail must
    /// have all of them still. A request has room for 500.
    ///
    /// # Errors
    /// As [`Client::tools`]; for admins only.
    pub async fn verify_audit(
        &self,
        heads: &[String],
    ) -> Result<Received<AuditReport>, ClientError> {
        let ask = Ask::new(Method::GET, &["audit", "verify"]);
        let heads = (!heads.is_empty()).then(|| heads.join(","));
        self.read(ask.maybe("head", heads.as_deref())).await
    }

    /// The audit trail after the record of that number, as lines of JSON.
    ///
    /// # Errors
    /// As [`Client::tools`]; for admins only.
    pub async fn audit(&self, after: u64) -> Result<Output, ClientError> {
        let ask = Ask::new(Method::GET, &["audit"]).param("after", &after.to_string());
        let sent = self.transport.send(ask).await?;
        Ok(Output::new(sent.expect(&[StatusCode::OK]).await?))
    }
}
