use std::convert::Infallible;
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::response::Response;
use futures_util::future::{Either, Ready, ready};
use tower::{Layer, Service};

/// Stands before a route and says, by a look at a request, what it is answered if it is not let through. That
/// is for what needs no waiting: axum's own middleware takes memory for each request.
#[derive(Clone)]
pub(super) struct Guard<F>(pub(super) F);

/// A service with its guard.
#[derive(Clone)]
pub(super) struct Guarded<S, F> {
    inner: S,
    refusal: F,
}

impl<S, F: Clone> Layer<S> for Guard<F> {
    type Service = Guarded<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        let refusal = self.0.clone();
        Guarded { inner, refusal }
    }
}

impl<S, F> Service<Request> for Guarded<S, F>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    F: Fn(&Request) -> Option<Response>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match (self.refusal)(&request) {
            None => Either::Left(self.inner.call(request)),
            Some(response) => Either::Right(ready(Ok(response))),
        }
    }
}
