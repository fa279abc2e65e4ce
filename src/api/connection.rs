use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, Version, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::ServiceExt;

use super::busy::Busy;
use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::{Api, routes, unread};

/// How long a connection may be idle between two requests, or take to send a request's headers.
/// A brain that thinks between two calls keeps its connection; one that forgot it does not.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Room for an answer of 1 MiB with its escapes (`SO_SNDBUFFORCE`, socket(7)). The kernel takes
/// memory only for what a slow client has not read.
const SEND_BUFFER_BYTES: usize = 2 << 20;

/// How long `accept` rests after it failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long the answer "too many connections" may take to be delivered.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// How HTTP/2 begins when nobody negotiated it (RFC 9113, section 3.4), as far as no method of HTTP/1
/// begins so.
const HTTP2_BEGINS: &[u8] = b"PRI ";

/// How many requests of one HTTP/2 connection are served at once; more wait with the client. As many
/// as RFC 9113 (section 6.5.2) thinks the least that is useful.
const MAX_STREAMS: u32 = 100;

/// What a client may send ahead of who reads it, in bytes: of one request, and of a whole connection.
/// The latter bounds what those can make the daemon hold who are refused without their bodies being read.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// The most that the headers of one request may take, in bytes, as HTTP/2 counts them; about what hyper
/// gives HTTP/1 in all.
const MAX_HEADERS: u32 = 64 << 10;

/// How long an idle HTTP/2 client has to take notice that its connection ends.
const GOODBYE: Duration = Duration::from_secs(1);

/// What answers on a listener, by what is spoken there.
#[derive(Clone)]
pub struct Routes {
    http: Router,
    grpc: Option<Router>,
}

impl Routes {
    /// HTTP, as in the route table.
    pub fn new(api: Api) -> Self {
        Self::of(routes::router(api))
    }

    /// Nothing but this.
    pub(super) fn of(http: Router) -> Self {
        Self { http, grpc: None }
    }

    /// Besides, what answers requests with the content type of gRPC.
    #[must_use]
    pub fn with_grpc(self, grpc: Router) -> Self {
        Self {
            grpc: Some(grpc),
            ..self
        }
    }

    async fn answer<B>(self, request: Request<B>) -> Result<Response, Infallible>
    where
        B: hyper::body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let Some(grpc) = self.grpc.filter(|_| is_grpc(request.headers())) else {
            return self.http.oneshot(request).await;
        };
        if request.version() != Version::HTTP_2 {
            let detail = "gRPC takes HTTP/2, with prior knowledge: this connection speaks HTTP/1";
            return Ok(Refusal::new(Code::MalformedRequest, detail).into_response());
        }
        grpc.oneshot(request).await
    }
}

/// Whether a request is one of gRPC: `application/grpc`, alone or with `+proto` or the like.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let rest = kind.and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

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
    routes: Routes,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(limits.max_connections));
    // The daemon's probe of its own socket gets through however many clients there are.
    let own_place = Arc::new(Semaphore::new(1));
    let mut refusals = Refusals {
        places: Arc::new(Semaphore::new(limits.max_refusals)),
        is_stuck: false,
    };
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
            let (routes, closed, open) = (routes.clone(), closed.clone(), closed.clone());
            tokio::spawn(async move {
                if let Err(error) = connection(stream, routes, closed).await {
                    tracing::debug!(%error, "a connection ended early");
                }
                drop((place, open));
            });
        } else if let Some(place) = refusals.place().await {
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

/// Places for those who are told that there is none.
struct Refusals {
    places: Arc<Semaphore>,
    /// Whether all are taken by clients who send nothing.
    is_stuck: bool,
}

impl Refusals {
    /// A place, if one is free or about to be.
    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        if self.places.available_permits() == 0 && !self.is_stuck {
            // Many came at once: those before this one are told now, if they have asked anything.
            tokio::task::yield_now().await;
        }
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        self.is_stuck = place.is_none();
        place
    }
}

fn is_own(stream: &UnixStream) -> bool {
    let pid = stream
        .peer_cred()
        .ok()
        .and_then(|credentials| credentials.pid());
    pid == Some(nix::unistd::getpid().as_raw())
}

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn connection(
    stream: UnixStream,
    routes: Routes,
    mut closing: watch::Receiver<bool>,
) -> Served {
    let peer = Peer::of(&stream)?;
    widen(&stream);
    let version = tokio::select! {
        version = tokio::time::timeout(IDLE_TIMEOUT, version(&stream)) => match version {
            Ok(version) => version?,
            Err(_) => return Ok(()),
        },
        // Nothing has come: the one that is told so by its connection being closed.
        () = asked_to_close(&mut closing) => Version::HTTP_11,
    };
    match version {
        // It is there for gRPC, and many requests at once on one connection hold many bodies.
        Version::HTTP_2 if routes.grpc.is_some() => {
            serve_http2(stream, peer, routes, closing).await
        }
        _ => serve_http1(stream, peer, routes, closing).await,
    }
}

async fn serve_http1(
    stream: UnixStream,
    peer: Peer,
    routes: Routes,
    mut closing: watch::Receiver<bool>,
) -> Served {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let routes = routes.clone();
        unread::answered(request, |request| routes.answer(request))
    });
    let connection = http1::Builder::new()
        // A client may say that it has nothing more to send and still want its answer.
        .half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => served?,
        () = asked_to_close(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await?;
        }
    }
    Ok(())
}

async fn serve_http2(
    stream: UnixStream,
    peer: Peer,
    routes: Routes,
    mut closing: watch::Receiver<bool>,
) -> Served {
    let busy = Busy::default();
    let mut idle = busy.watch();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let (answer, one) = (routes.clone().answer(request), busy.one());
        async move { Ok::<_, Infallible>(one.until_sent(answer.await?)) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return Ok(served?),
        () = asked_to_close(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await?;
            return Ok(());
        }
        () = idle.lasts(IDLE_TIMEOUT) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        served = connection => Ok(served?),
        // Unless a request has crossed the word that there should be none.
        () = idle.lasts(GOODBYE) => Ok(()),
    }
}

async fn asked_to_close(closing: &mut watch::Receiver<bool>) {
    // Whoever tells it lives longer than any connection.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// What a client speaks, by its first bytes, which are left where they are.
async fn version(stream: &UnixStream) -> io::Result<Version> {
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        let looked = stream.try_io(Interest::READABLE, || {
            let mut first = [0; HTTP2_BEGINS.len()];
            let length = recv(stream.as_raw_fd(), &mut first, MsgFlags::MSG_PEEK)?;
            match HTTP2_BEGINS.strip_prefix(&first[..length]) {
                Some([]) => Ok(Version::HTTP_2),
                // So few bytes may be the beginning of either, if more are to come.
                Some(_) if length > 0 && !ready.is_read_closed() => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Some(_) | None => Ok(Version::HTTP_11),
            }
        });
        match looked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            looked => return looked,
        }
    }
}

/// Lets a whole answer of the usual cap be handed to the kernel at once instead of piece by piece
/// as the client reads. Where that takes a privilege which is missing, the default serves too.
fn widen(stream: &UnixStream) {
    let _ = setsockopt(stream, sockopt::SndBufForce, &SEND_BUFFER_BYTES);
}

/// Answers one request with 503, whatever it is.
async fn refuse(stream: UnixStream) -> hyper::Result<()> {
    let service = service_fn(|request: Request<Incoming>| async {
        if !request.headers().contains_key(header::EXPECT) {
            unread::discard(request.into_body()).await;
        }
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
