use std::convert::Infallible;
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::response::Response;
use futures_util::future::{Either, Ready, ready};
use tower::{Layer, Service};

/// Stands before a route, for what a look at a request decides: axum's own middleware may wait, and takes memory for
/// each request. The function says what a request is answered that is not let through.
#[derive(Clone)]
pub(super) struct Guard<F>(pub(super) F);

/// A route with its guard.
#[derive(Clone)]
pub(super) struct Guarded<S, F> {
    inner: S,
    refuse: F,
}

impl<S, F: Clone> Layer<S> for Guard<F> {
    type Service = Guarded<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        let refuse = self.0.clone();
        Guarded { inner, refuse }
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
        match (self.refuse)(&request) {
            None => Either::Left(self.inner.call(request)),
            Some(response) => Either::Right(ready(Ok(response))),
        }
    }
}
