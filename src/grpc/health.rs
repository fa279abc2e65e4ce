//! `grpc.health.v1`: whether calls are taken. How well the daemon is otherwise is for `GET /health`.

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use tonic::{Request, Response, Status, async_trait};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::routes::is_served;
use crate::api::Api;

/// Answers for the daemon as a whole (the empty name) and for each service.
pub(super) struct Serving(Api);

impl Serving {
    pub(super) fn new(api: Api) -> Self {
        Self(api)
    }

    fn now(&self) -> ServingStatus {
        match self.0.health.is_stopping() {
            true => ServingStatus::NotServing,
            false => ServingStatus::Serving,
        }
    }
}

fn is_known(service: &str) -> bool {
    service.is_empty() || is_served(service)
}

fn told(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}

#[async_trait]
impl Health for Serving {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match is_known(&service) {
            true => Ok(Response::new(told(self.now()))),
            false => Err(Status::not_found(format!(
                "there is no service `{service}`"
            ))),
        }
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let health = self.0.health.clone();
        let ended = {
            let health = health.clone();
            async move { health.ended().await }
        };
        let first = match is_known(&request.into_inner().service) {
            true => self.now(),
            // As the standard asks, for it might come yet; none does.
            false => ServingStatus::ServiceUnknown,
        };
        let then = stream::once(async move {
            if first != ServingStatus::Serving {
                std::future::pending::<()>().await;
            }
            health.stopping().await;
            ServingStatus::NotServing
        });
        let silence = stream::once(std::future::pending());
        let statuses = stream::iter([first]).chain(then).chain(silence);
        let answers = statuses.map(|status| Ok(told(status))).take_until(ended);
        Ok(Response::new(Box::pin(answers)))
    }
}
