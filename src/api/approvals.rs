//! What waits for somebody's word, and the word.

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::cut::Cutter;
use super::execute::undivided;
use super::executions::{is_admin, unreadable};
use super::json::{json_response, to_json};
use super::object::{self, Shape};
use super::path::Name;
use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::query::{self, bad_query};
use super::request::{self, Limit};
use crate::config::Access;
use crate::domain::{ApprovalId, Remember, RiskLevel, timestamp};
use crate::pipeline::{Answer, Approval, Approvals, CannotDecide, beside};

/// The longest decision, in bytes: a reason of some length.
const LIMIT: Limit = Limit {
    bytes: 64 * 1024,
    said_by: "the most that a decision may have",
};

/// What a decision should look like.
const DECISION: Shape = Shape {
    name: "decision",
    expected: "expected a decision such as {\"decision\": \"approve\"}",
};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalsQuery {
    /// Those that are decided, too, as far as their executions are kept.
    #[param(nullable = false)]
    #[serde(default, deserialize_with = "query::flag")]
    all: Option<bool>,
}

/// Several approvals.
#[derive(Serialize, ToSchema)]
#[schema(as = Approvals)]
pub(super) struct ApprovalsBody {
    /// Oldest first.
    approvals: Vec<ApprovalBody>,
}

/// The question whether something may run, and its answer.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
pub(crate) struct ApprovalBody {
    /// Its name.
    #[schema(format = "uuid")]
    id: String,
    /// The execution that waits for it.
    #[schema(format = "uuid")]
    execution_id: String,
    /// The tool that would run.
    tool: String,
    /// Its version; empty when it has none.
    tool_version: String,
    /// The tools that led to the call, the outermost first; empty when it came from outside.
    chain: Vec<String>,
    /// What it is about, in a line.
    summary: String,
    /// Its input, defaults filled in and secrets masked.
    input: Value,
    /// The directory it would run in; null for the daemon's own.
    #[schema(required)]
    working_dir: Option<String>,
    /// The variables the call sets.
    env_names: Vec<String>,
    /// Its standard input, secrets masked; null when it is empty.
    #[schema(required)]
    stdin: Option<String>,
    /// The time limit it asks for, in seconds; null for the tool's own.
    #[schema(required)]
    timeout_secs: Option<f64>,
    /// What becomes of the processes it leaves behind.
    background: &'static str,
    /// How far it is trusted.
    risk_level: RiskLevel,
    /// The directory of the host's that it could use in a sandbox; null for none of its own.
    #[schema(required)]
    workspace: Option<String>,
    /// The values that a skill would find (`config`, `memory`, `session`), secrets masked; empty for other tools.
    #[schema(value_type = Object)]
    context: Value,
    /// Who asks.
    #[schema(format = "int64")]
    caller_uid: u32,
    /// SHA-256 of all that would run: tool, input, directory, environment, scripts, values.
    digest: String,
    /// When it was asked.
    #[schema(format = "date-time")]
    created_at: String,
    /// Until when an answer counts.
    #[schema(format = "date-time")]
    expires_at: String,
    /// How it stands.
    #[schema(example = "pending")]
    status: &'static str,
    /// The rules that remembering it would add; empty when it cannot be.
    remember_rules: Vec<String>,
    /// Who decided; null until somebody has.
    #[schema(required, format = "int64")]
    decided_by: Option<u32>,
    /// When; null until then.
    #[schema(required, format = "date-time")]
    decided_at: Option<String>,
    /// Why, in their words.
    #[schema(required)]
    reason: Option<String>,
    /// How long it is remembered: `once`, `session` or `always`.
    #[schema(required)]
    remember: Option<String>,
    /// Whether something of it is too long for a list and cut: `GET /approvals/{id}` has all of it, to decide by.
    truncated: bool,
}

/// An answer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Decision)]
pub(super) struct DecisionBody {
    /// Whether it may run.
    #[serde(deserialize_with = "object::word")]
    decision: DecisionWord,
    /// Why; the caller is told of a refusal's.
    reason: Option<String>,
    /// For how long; `once` unless told.
    #[serde(default, deserialize_with = "object::word")]
    remember: Remember,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum DecisionWord {
    Approve,
    Deny,
}

impl ApprovalBody {
    pub(crate) fn new(approval: &Approval, summary: String) -> Self {
        let decided = approval.decided.as_ref();
        Self {
            id: approval.id.to_string(),
            execution_id: approval.execution_id.to_string(),
            tool: approval.tool.clone(),
            tool_version: approval.tool_version.clone(),
            chain: approval.chain.clone(),
            summary,
            input: approval.input.clone(),
            working_dir: approval
                .working_dir
                .as_ref()
                .map(|dir| dir.display().to_string()),
            env_names: approval.env_names.clone(),
            stdin: approval.stdin.clone(),
            timeout_secs: approval.timeout.map(|limit| limit.as_secs_f64()),
            background: super::body::background(approval.keeps_background),
            risk_level: approval.risk_level,
            workspace: approval
                .workspace
                .as_ref()
                .map(|dir| dir.display().to_string()),
            context: approval.context.clone(),
            caller_uid: approval.caller_uid,
            digest: approval.digest.to_string(),
            created_at: timestamp(approval.created_at),
            expires_at: timestamp(approval.expires_at),
            status: approval.status.as_str(),
            remember_rules: approval.remember_rules.clone(),
            decided_by: decided.and_then(|decided| decided.by),
            decided_at: decided.map(|decided| timestamp(decided.at)),
            reason: decided.and_then(|decided| decided.reason.clone()),
            remember: approval.remember.clone(),
            truncated: false,
        }
    }

    /// The same, with as much of what is long as a list shows.
    fn in_brief(mut self) -> Self {
        let mut cutter = Cutter::default();
        cutter.value(&mut self.input);
        cutter.value(&mut self.context);
        let Self {
            stdin,
            working_dir,
            workspace,
            reason,
            ..
        } = &mut self;
        for text in [stdin, working_dir, workspace, reason] {
            text.iter_mut().for_each(|text| cutter.text(text));
        }
        for texts in [
            &mut self.remember_rules,
            &mut self.chain,
            &mut self.env_names,
        ] {
            cutter.texts(texts);
        }
        self.truncated = cutter.has_cut;
        self
    }
}

/// What waits for an approver, oldest first.
///
/// Approvers and admins see all of it, others what they have asked for themselves. What is long is cut (`truncated`):
/// `GET /approvals/{id}` has the whole of one.
#[utoipa::path(
    get, path = "/approvals", tag = "approvals", operation_id = "listApprovals",
    params(ApprovalsQuery),
    responses((status = 200, description = "Those that wait.", body = ApprovalsBody))
)]
pub(super) async fn list(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<ApprovalsQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(ApprovalsQuery { all }) = query.map_err(bad_query)?;
    let which = match all {
        Some(true) => Approvals::All,
        Some(false) | None => Approvals::Pending,
    };
    let executor = api.executor.clone();
    // One by one, where they are read: what they ask about may be long.
    let entry = move |approval: Approval| {
        let entry = || shown(&api, &approval).in_brief();
        sees(&api, &peer, &approval).then(entry)
    };
    let found = executor.approvals(which, entry).await;
    let approvals = found.map_err(unreadable)?.into_iter().flatten().collect();
    Ok(json_response(
        StatusCode::OK,
        to_json(&ApprovalsBody { approvals }),
    ))
}

/// One approval.
#[utoipa::path(
    get, path = "/approvals/{id}", tag = "approvals", operation_id = "showApproval",
    params(("id" = String, Path, format = "uuid", description = "The approval's id.")),
    responses((status = 200, description = "As it stands.", body = ApprovalBody))
)]
pub(super) async fn show(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Name(id): Name,
) -> Result<Response, Refusal> {
    let id = parse(&id)?;
    let executor = api.executor.clone();
    let whole = move |approval: Approval| {
        sees(&api, &peer, &approval).then(|| to_json(&shown(&api, &approval)))
    };
    let found = executor.approvals(Approvals::One(id), whole).await;
    let theirs = found.map_err(unreadable)?.into_iter().flatten().next();
    let approval = theirs.ok_or_else(|| unknown(&id.to_string()))?;
    Ok(json_response(StatusCode::OK, approval))
}

/// Approve or deny.
///
/// The first answer counts. What was approved runs at once, if it is still what was asked about.
#[utoipa::path(
    post, path = "/approvals/{id}", tag = "approvals", operation_id = "decideApproval",
    params(("id" = String, Path, format = "uuid", description = "The approval's id.")),
    request_body = DecisionBody,
    responses((status = 200, description = "It is decided.", body = ApprovalBody))
)]
pub(super) async fn decide(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Name(id): Name,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let id = parse(&id)?;
    let bytes = request::within(LIMIT, (body, &headers), &api).await?;
    let decision: DecisionBody = DECISION
        .read(&bytes)
        .map_err(|why| Refusal::new(Code::MalformedRequest, why))?;
    let answer = Answer {
        approves: matches!(decision.decision, DecisionWord::Approve),
        reason: decision.reason,
        remember: decision.remember,
    };
    // Commands have the daemon's privileges, whoever calls: what they say is not their operator's word.
    if let Some(execution) = api.executor.execution_of(peer.pid) {
        let detail = format!(
            "the sender is a process of execution `{execution}`: an approver decides from outside of what is run here"
        );
        return Err(Refusal::new(Code::AccessDenied, detail));
    }
    // Only now: it was there while it was looked for.
    if !peer.is_there() {
        let detail = "the process that has connected has ended, so that nobody can tell whether it was one of what is run here: a decision is sent by the process that connects, and it waits for the answer";
        return Err(Refusal::new(Code::AccessDenied, detail));
    }
    let executor = api.executor.clone();
    let deciding = async move {
        let decided = executor.decide(id, &peer.caller, answer).await;
        decided.map_err(refusal)
    };
    let approval = undivided(deciding).await?;
    // What it is about may be long.
    let approval = beside(move || to_json(&shown(&api, &approval))).await;
    Ok(json_response(StatusCode::OK, approval))
}

fn shown(api: &Api, approval: &Approval) -> ApprovalBody {
    ApprovalBody::new(approval, api.executor.summary_of(approval))
}

fn sees(api: &Api, peer: &Peer, approval: &Approval) -> bool {
    let approvers = &api.edge.settings().access.approvers;
    approval.caller_uid == peer.caller.uid
        || Access::lists(approvers, &peer.caller)
        || is_admin(api, peer)
}

fn parse(id: &str) -> Result<ApprovalId, Refusal> {
    id.parse().map_err(|_| unknown(id))
}

fn unknown(id: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("there is no approval `{id}`"))
}

fn refusal(error: CannotDecide) -> Refusal {
    let detail = error.to_string();
    match error {
        CannotDecide::Unknown(id) => unknown(&id.to_string()),
        CannotDecide::Decided(_) => Refusal::new(Code::ApprovalDecided, detail),
        CannotDecide::Own { .. } => Refusal::new(Code::AccessDenied, detail),
        CannotDecide::NotRememberable | CannotDecide::RefusalRemembered => {
            Refusal::new(Code::MalformedRequest, detail)
        }
        CannotDecide::NotRemembered(_) => Refusal::new(Code::Internal, detail),
        CannotDecide::Ledger(error) => Refusal::new(Code::AuditUnavailable, error.to_string()),
    }
}
