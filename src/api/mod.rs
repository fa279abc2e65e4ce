//! HTTP over the Unix socket: who is calling, one literal route table, and the translation between
//! JSON and the words of the house. Decides nothing that the pipeline could decide.

mod accept;
mod approvals;
mod audit;
mod body;
mod busy;
mod capability;
mod connection;
mod context;
mod cut;
mod door;
mod events;
mod execute;
mod executions;
mod guard;
mod health;
mod history;
mod json;
mod lost;
mod metrics;
mod object;
mod openapi;
mod output;
mod pace;
mod path;
mod peer;
mod permissions;
mod problem;
mod query;
mod range;
mod request;
mod routes;
mod sse;
mod tools;
mod unread;
mod wire;
mod withheld;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

pub use accept::{Backlog, Limits, serve};
pub use connection::Routes;
pub use door::Doors;
pub use health::{Health, Reading};
pub use openapi::document as openapi_document;
pub use wire::parse_call;

// For gRPC, which is the same in other words.
pub(crate) use approvals::ApprovalBody;
pub(crate) use execute::{Asked, Opened, Watch, begin, undivided};
pub(crate) use pace::Paced;
pub(crate) use peer::{Peer, missing as no_peer};
pub(crate) use problem::{Code, Refusal, ViolationBody, violations};
pub(crate) use request::parse;
pub(crate) use routes::{Audience, admitted};
pub(crate) use sse::PIECE_BYTES;

use crate::Executor;
use crate::config::Access;

/// What the handlers work with. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    /// Does the work.
    pub executor: Executor,
    /// What is known of the daemon besides its executions.
    pub health: Arc<Health>,
    /// What of the configuration the edge itself goes by.
    pub edge: Arc<Edge>,
}

/// The configuration of the edge, replaced as a whole.
#[derive(Debug)]
pub struct Edge {
    settings: watch::Sender<Arc<EdgeSettings>>,
}

/// See [`Edge`].
#[derive(Clone, Debug)]
pub struct EdgeSettings {
    /// Who may do what.
    pub access: Access,
    /// The largest request body, in bytes.
    pub max_request_bytes: usize,
}

impl Edge {
    /// Begins with `settings`.
    pub fn new(settings: EdgeSettings) -> Self {
        Self {
            settings: watch::Sender::new(Arc::new(settings)),
        }
    }

    /// What is in force.
    pub fn settings(&self) -> Arc<EdgeSettings> {
        Arc::clone(&self.settings.borrow())
    }

    /// Puts `settings` in force for requests from now on.
    pub fn replace(&self, settings: EdgeSettings) {
        self.settings.send_replace(Arc::new(settings));
    }

    /// Completes when somebody may do what they might not under `access`, or the other way round.
    pub(super) async fn access_differs(&self, access: &Access) {
        let mut settings = self.settings.subscribe();
        // It is there for as long as this is.
        let _ = settings.wait_for(|now| now.access != *access).await;
    }
}

impl Api {
    /// An edge over `executor`.
    pub fn new(executor: Executor, settings: EdgeSettings) -> Self {
        Self {
            executor,
            health: Arc::new(Health::new(Instant::now())),
            edge: Arc::new(Edge::new(settings)),
        }
    }
}
