//! The one literal table of services: name, who may, and what answers.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http;
use axum::middleware::{self, Next};
use axum::response::Response;
use futures_util::StreamExt;
use http_body_util::BodyExt as _;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{Code as GrpcCode, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder;

use super::health::Serving;
use super::proto::DESCRIPTOR;
use super::proto::tool_executor_server::ToolExecutorServer;
use super::service::Tools;
use super::status::of_refusal;
use crate::api::{Api, Audience, Code, Paced, Peer, Refusal, admitted};

/// The longest message to a service that takes names only, in bytes.
const NAME_BYTES: usize = 16 << 10;

/// One row of the table.
struct Row {
    name: &'static str,
    audience: Audience,
    service: fn(Router, &str, &Api) -> Router,
}

/// All there is.
#[rustfmt::skip]
const SERVICES: &[Row] = &[
    Row { name: "shelly.executor.v1.ToolExecutor",          audience: Audience::Callers,   service: tools },
    Row { name: "grpc.health.v1.Health",                    audience: Audience::Connected, service: health },
    Row { name: "grpc.reflection.v1.ServerReflection",      audience: Audience::Connected, service: reflection },
    Row { name: "grpc.reflection.v1alpha.ServerReflection", audience: Audience::Connected, service: reflection_alpha },
];

/// Whether there is a service of that name.
pub(super) fn is_served(name: &str) -> bool {
    SERVICES.iter().any(|row| row.name == name)
}

/// The table as a service: what answers requests of gRPC.
pub fn router(api: &Api) -> Router {
    let mut router = Router::new();
    for Row {
        name,
        audience,
        service,
    } in SERVICES
    {
        let path = format!("/{name}/{{*method}}");
        let guard = middleware::from_fn_with_state((api.clone(), *audience), admit);
        router = router.merge(service(Router::new(), &path, api).route_layer(guard));
    }
    router.fallback(|request: Request| async move {
        let path = request.uri().path();
        let detail = format!("there is no `{path}`: reflection tells what there is");
        Status::unimplemented(detail).into_http::<axum::body::Body>()
    })
}

/// Lets a request through to its service when its sender belongs to the audience.
async fn admit(
    State((api, audience)): State<(Api, Audience)>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>();
    if let Err(refusal) = admitted(&api, audience, peer) {
        return of_refusal(refusal).into_http();
    }
    next.run(request).await
}

fn tools(router: Router, path: &str, api: &Api) -> Router {
    let tools = Arc::new(Tools::new(api.clone()));
    let answer = move |request: Request| {
        let limit = tools.api().edge.settings().max_request_bytes;
        let server = ToolExecutorServer::from_arc(Arc::clone(&tools));
        let mut server = server.max_decoding_message_size(limit);
        async move { within(limit, to_axum(server.call(in_time(request)).await)) }
    };
    router.route(path, axum::routing::any(answer))
}

/// In the words of the house, what the library says of a message that is too long. Nothing else here has
/// that code.
fn within(limit: usize, response: Response) -> Response {
    let headers = response.headers();
    if Status::from_header_map(headers).is_none_or(|status| status.code() != GrpcCode::OutOfRange) {
        return response;
    }
    let detail = format!("the message is larger than {limit} bytes (max_request_bytes)");
    of_refusal(Refusal::new(Code::PayloadTooLarge, detail)).into_http()
}

fn health(router: Router, path: &str, api: &Api) -> Router {
    let server = HealthServer::new(Serving::new(api.clone()));
    let server = server.max_decoding_message_size(NAME_BYTES);
    let answer = move |request: Request| {
        let mut server = server.clone();
        async move { to_axum(server.call(in_time(request)).await) }
    };
    router.route(path, axum::routing::any(answer))
}

/// A request whose one message has to come in the time that HTTP's bodies have.
fn in_time(request: Request) -> Request {
    request.map(|body| {
        let body = Paced::new(body).map_err(|error| {
            let detail = format!("the message ended early: {error}");
            of_refusal(Refusal::new(Code::MalformedRequest, detail))
        });
        axum::body::Body::new(body)
    })
}

fn described() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTOR)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

fn reflection(router: Router, path: &str, api: &Api) -> Router {
    reflect(router, path, api, || {
        let server = described().build_v1()?;
        Ok(server.max_decoding_message_size(NAME_BYTES))
    })
}

fn reflection_alpha(router: Router, path: &str, api: &Api) -> Router {
    reflect(router, path, api, || {
        let server = described().build_v1alpha()?;
        Ok(server.max_decoding_message_size(NAME_BYTES))
    })
}

/// Answers with what the contract is, as long as the daemon lives: a client that asks one question after
/// the other does not hold up its end.
fn reflect<S>(
    router: Router,
    path: &str,
    api: &Api,
    build: fn() -> Result<S, tonic_reflection::server::Error>,
) -> Router
where
    S: Service<Request, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    // Made when somebody asks: most daemons never are, and all would have it in memory.
    let built: Arc<OnceLock<Option<S>>> = Arc::default();
    let health = Arc::clone(&api.health);
    let answer = move |request: Request| {
        let server = built.get_or_init(|| {
            let refused = |error| tracing::error!(%error, "cannot read the contract of gRPC");
            build().map_err(refused).ok()
        });
        let (server, health) = (server.clone(), Arc::clone(&health));
        async move {
            let Some(mut server) = server else {
                let refusal = Refusal::new(Code::Internal, "the contract cannot be read");
                return of_refusal(refusal).into_http();
            };
            let request = request.map(|body| {
                let ended = async move { health.ended().await };
                axum::body::Body::from_stream(body.into_data_stream().take_until(Box::pin(ended)))
            });
            to_axum(server.call(request).await)
        }
    };
    router.route(path, axum::routing::any(answer))
}

fn to_axum(response: Result<http::Response<Body>, Infallible>) -> Response {
    match response {
        Ok(response) => response.map(axum::body::Body::new),
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_to_whoever_connects_is_known_by_name() {
        let open: Vec<&str> = SERVICES
            .iter()
            .filter(|row| row.audience == Audience::Connected)
            .map(|row| row.name)
            .collect();
        assert_eq!(
            open,
            [
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection"
            ]
        );
    }

    #[test]
    fn the_contract_can_be_reflected() {
        described().build_v1().expect("a descriptor");
        described().build_v1alpha().expect("a descriptor");
    }
}
