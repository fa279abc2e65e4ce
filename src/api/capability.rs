use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};

use super::Api;
use super::peer::Peer;
use super::problem::{Code, Refusal};
use crate::pipeline::Execution;

/// The execution on whose behalf a request is made that shows a token (`Authorization: Bearer`, RFC
/// 6750); `None` of one that shows nothing and is its sender's own.
pub(super) fn shown(
    headers: &HeaderMap,
    api: &Api,
    peer: &Peer,
) -> Result<Option<Arc<Execution>>, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let token = value.to_str().ok().and_then(bearer);
    let found = token.and_then(|token| api.executor.admitted_by(token, peer.pid));
    match found {
        Some(execution) => Ok(Some(execution)),
        None => Err(refused(
            "the token in `Authorization` is not that of an execution which is under way and of which the sender is a process: expected `Bearer` and the value of SHELLY_CAPABILITY; without that header the call is the sender's own",
        )),
    }
}

/// What there is for processes of skills only.
pub(super) fn not_shown() -> Refusal {
    refused(
        "this is for processes of skills: expected the header `Authorization: Bearer` with the value of SHELLY_CAPABILITY",
    )
}

fn refused(detail: &str) -> Refusal {
    let challenge = HeaderValue::from_static("Bearer");
    Refusal::new(Code::BadCapability, detail).with_header(header::WWW_AUTHENTICATE, challenge)
}

/// The token of an `Authorization: Bearer`, whose scheme is written in any case.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start())
}
