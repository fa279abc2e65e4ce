use std::convert::Infallible;
use std::io;
use std::os::fd::AsRawFd;
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
use tokio::net::UnixStream;
use tokio::sync::watch;
use tower::ServiceExt;

use super::busy::Busy;
use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::unread::{self, Coming, Drained};
use super::{Api, routes};

/// How long a connection may be idle between two requests, or take to send a request's headers.
/// A brain that thinks between two calls keeps its connection; one that forgot it does not.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Room for an answer of 1 MiB with its escapes (`SO_SNDBUFFORCE`, socket(7)). The kernel takes
/// memory only for what a slow client has not read.
const SEND_BUFFER_BYTES: usize = 2 << 20;

/// The first bytes of HTTP/2 where it is used without negotiation (RFC 9113, section 3.4): as many as are needed to
/// tell it from HTTP/1, none of whose methods is `PRI`.
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

    /// Whether HTTP/2 is spoken: it is there for gRPC, and many requests at once on one connection hold many bodies.
    pub(super) fn take_http2(&self) -> bool {
        self.grpc.is_some()
    }

    async fn answer<B>(self, request: Request<B>) -> Result<Response, Infallible>
    where
        B: hyper::body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        if is_addressed_badly(&request) {
            let detail = "HTTP/1.1 takes one Host (RFC 9112, section 3.2): any will do, such as `Host: localhost`";
            return Ok(Refusal::new(Code::MalformedRequest, detail).into_response());
        }
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

/// Whether a request says otherwise than once which host it is for.
fn is_addressed_badly<B>(request: &Request<B>) -> bool {
    let hosts = request.headers().get_all(header::HOST);
    request.version() == Version::HTTP_11 && hosts.iter().count() != 1
}

/// Whether a request is one of gRPC: `application/grpc`, alone or with `+proto` or the like.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let rest = kind.and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

pub(super) type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Serves a connection until either side closes it, or what is in flight when it is asked to has been answered.
pub(super) async fn connection(
    stream: UnixStream,
    peer: Peer,
    routes: Routes,
    mut closing: watch::Receiver<bool>,
) -> Served {
    widen(&stream);
    let spoken = tokio::time::timeout(IDLE_TIMEOUT, spoken(&stream, &mut closing));
    let Ok(version) = spoken.await else {
        return Ok(());
    };
    match version? {
        Version::HTTP_2 if routes.take_http2() => serve_http2(stream, peer, routes, closing).await,
        _ => serve_http1(stream, peer, routes, closing).await,
    }
}

async fn serve_http1(
    stream: UnixStream,
    peer: Peer,
    routes: Routes,
    mut closing: watch::Receiver<bool>,
) -> Served {
    let coming = Coming::default();
    let (client, body) = (peer.clone(), coming.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let (routes, body) = (routes.clone(), body.clone());
        async move { unread::answered(request, &body, |request| routes.answer(request)).await }
    });
    let connection = http1::Builder::new()
        // A client may say that it has nothing more to send and still want its answer.
        .half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return Ok(served?),
        () = asked_to_close(&mut closing) => {}
    }
    if coming.is_some() {
        // The answer says that it is the last.
        connection.as_mut().graceful_shutdown();
    } else {
        // To close it would lose requests that have been sent and not been read.
        client.take_no_more()?;
    }
    Ok(connection.await?)
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
        let request = request.map(Drained::new);
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

pub(super) async fn asked_to_close(closing: &mut watch::Receiver<bool>) {
    // Whoever tells it lives longer than any connection.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// What a client speaks. When its connection is asked to close, that is judged by the bytes that are there by then;
/// where there are too few it is HTTP/1, whose clients need no more than that the connection is closed.
pub(super) async fn spoken(
    stream: &UnixStream,
    closing: &mut watch::Receiver<bool>,
) -> io::Result<Version> {
    tokio::select! {
        version = version(stream) => version,
        () = asked_to_close(closing) => Ok(begun(stream).unwrap_or(Version::HTTP_11)),
    }
}

/// What a client speaks, by its first bytes, which are left where they are.
async fn version(stream: &UnixStream) -> io::Result<Version> {
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        let looked = stream.try_io(Interest::READABLE, || begun(stream));
        match looked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // So few bytes may be the beginning of either, if more are to come.
                if ready.is_read_closed() {
                    return Ok(Version::HTTP_11);
                }
            }
            looked => return looked,
        }
    }
}

/// What the bytes say that are there; `WouldBlock` where they are too few.
fn begun(stream: &UnixStream) -> io::Result<Version> {
    let mut first = [0; HTTP2_BEGINS.len()];
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    let length = recv(stream.as_raw_fd(), &mut first, flags)?;
    match HTTP2_BEGINS.strip_prefix(&first[..length]) {
        Some([]) => Ok(Version::HTTP_2),
        Some(_) if length > 0 => Err(io::ErrorKind::WouldBlock.into()),
        Some(_) | None => Ok(Version::HTTP_11),
    }
}

/// Lets a whole answer of the usual cap be handed to the kernel at once instead of piece by piece
/// as the client reads. Where that takes a privilege which is missing, the default serves too.
fn widen(stream: &UnixStream) {
    let _ = setsockopt(stream, sockopt::SndBufForce, &SEND_BUFFER_BYTES);
}
