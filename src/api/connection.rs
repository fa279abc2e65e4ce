use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::{Api, routes};

/// How long a connection may be idle between two requests, or take to send a request's headers.
/// A brain that thinks between two calls keeps its connection; one that forgot it does not.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Room for an answer of 1 MiB with its escapes (`SO_SNDBUFFORCE`, socket(7)). The kernel takes
/// memory only for what a slow client has not read.
const SEND_BUFFER_BYTES: usize = 2 << 20;

/// How long `accept` rests after it failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long the answer "too many connections" may take to be delivered.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Bounds of [`serve`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many connections are served at once; one more is answered 503 and closed.
    pub max_connections: usize,
    /// How many refused connections are being told so at once; beyond that they are closed
    /// without a word.
    pub max_refusals: usize,
}

/// Serves `listener` until `shutdown` completes, then takes no more connections, lets requests
/// that are under way finish, and returns when the last connection is closed.
pub async fn serve(
    listener: UnixListener,
    api: Api,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    serve_routes(listener, routes::router(api), limits, shutdown).await;
}

/// The same with what a listener has to answer.
pub(super) async fn serve_routes(
    listener: UnixListener,
    router: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(limits.max_connections));
    // The daemon's probe of its own socket gets through however many clients there are.
    let own_place = Arc::new(Semaphore::new(1));
    let refusals = Arc::new(Semaphore::new(limits.max_refusals));
    let (closing, closed) = watch::channel(false);
    tokio::pin!(shutdown);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            () = &mut shutdown => break,
        };
        let place = if is_own(&stream) { &own_place } else { &places };
        if let Ok(place) = Arc::clone(place).try_acquire_owned() {
            // One goes when the connection is asked to close, the other when it has.
            let (router, closed, open) = (router.clone(), closed.clone(), closed.clone());
            tokio::spawn(async move {
                if let Err(error) = connection(stream, router, closed).await {
                    tracing::debug!(%error, "a connection ended early");
                }
                drop((place, open));
            });
        } else if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
            tokio::spawn(async move {
                let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refuse(stream)).await;
                drop(place);
            });
        }
    }
    drop(listener);
    closing.send_replace(true);
    drop(closed);
    closing.closed().await;
}

fn is_own(stream: &UnixStream) -> bool {
    let pid = stream
        .peer_cred()
        .ok()
        .and_then(|credentials| credentials.pid());
    pid == Some(nix::unistd::getpid().as_raw())
}

async fn connection(
    stream: UnixStream,
    router: Router,
    mut closing: watch::Receiver<bool>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let peer = Peer::of(&stream)?;
    widen(&stream);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        // A client may say that it has nothing more to send and still want its answer.
        .half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let asked_to_close = async move { drop(closing.wait_for(|closing| *closing).await) };
    tokio::select! {
        served = connection.as_mut() => served?,
        () = asked_to_close => {
            connection.as_mut().graceful_shutdown();
            connection.await?;
        }
    }
    Ok(())
}

/// Lets a whole answer of the usual cap be handed to the kernel at once instead of piece by piece
/// as the client reads. Where that takes a privilege which is missing, the default serves too.
fn widen(stream: &UnixStream) {
    let _ = setsockopt(stream, sockopt::SndBufForce, &SEND_BUFFER_BYTES);
}

/// Answers one request with 503, whatever it is.
async fn refuse(stream: UnixStream) -> hyper::Result<()> {
    let service = service_fn(|_: Request<Incoming>| async {
        let detail = "too many connections (max_connections): close some or try again";
        let mut response = Refusal::new(Code::TooManyConnections, detail).into_response();
        let close = axum::http::HeaderValue::from_static("close");
        response
            .headers_mut()
            .insert(axum::http::header::CONNECTION, close);
        Ok::<_, std::convert::Infallible>(response)
    });
    http1::Builder::new()
        .half_close(true)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}
