use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::problem::{Code, Refusal};

/// The one variable part of a path. What cannot be read is refused like anything else.
pub(super) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(rejection) => {
                let detail = format!("the path cannot be read: {}", rejection.body_text());
                Err(Refusal::new(Code::MalformedRequest, detail))
            }
        }
    }
}
