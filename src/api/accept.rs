//! Accepts connections, within bounds, until it is told to stop, and loses none of them then.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::connection::{Routes, Served, asked_to_close, connection, spoken};
use super::peer::{Peer, take_no_more};
use super::problem::{Code, Refusal};
use super::unread;
use crate::domain::is_for_want;

/// How long `accept` rests after it failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long there is between two records of that: it may go on, and the log is read by people.
const ACCEPT_TOLD_EVERY: Duration = Duration::from_secs(10);

/// How long the answer "too many connections" may take to be delivered.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Bounds of [`serve`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many connections are served at once; one more is answered 503 and closed.
    pub max_connections: usize,
    /// How many refused connections are being told so at once; beyond that they are closed
    /// without a word.
    pub max_refusals: usize,
}

/// What becomes of connections that wait to be accepted when serving ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// They are accepted and answered: nobody will listen there any more.
    Answered,
    /// They stay for whoever else has the socket, as systemd does.
    Left,
}

/// Serves `listener` until `shutdown` completes, then takes no more connections but those of the `backlog`, lets
/// requests that are under way finish, and returns when the last connection is closed. A request that was sent as a
/// whole is answered; whoever sends one too late gets `EPIPE`, and knows that nobody has read it. Not so what is
/// pipelined behind an answer that says it is the last, and who is beyond [`Limits::max_refusals`].
pub async fn serve(
    listener: UnixListener,
    backlog: Backlog,
    routes: Routes,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let (closing, closed) = watch::channel(false);
    let mut server = Server {
        routes,
        places: Arc::new(Semaphore::new(limits.max_connections)),
        own_place: Arc::new(Semaphore::new(1)),
        refusals: Refusals {
            places: Arc::new(Semaphore::new(limits.max_refusals)),
            is_stuck: false,
        },
        closed,
    };
    tokio::pin!(shutdown);
    let mut told: Option<Instant> = None;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let taken = match accepted {
                    Ok((stream, _)) => server.take(stream).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = taken {
                    if told.is_none_or(|told| told.elapsed() >= ACCEPT_TOLD_EVERY) {
                        told = Some(Instant::now());
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            () = &mut shutdown => break,
        }
    }
    if backlog == Backlog::Answered
        && let Err(error) = server.take_waiting(&listener).await
    {
        tracing::warn!(%error, "cannot accept the connections that wait");
    }
    drop(listener);
    closing.send_replace(true);
    drop(server);
    closing.closed().await;
}

/// What has to do with new connections.
struct Server {
    routes: Routes,
    places: Arc<Semaphore>,
    /// The daemon's probe of its own socket gets through however many clients there are.
    own_place: Arc<Semaphore>,
    refusals: Refusals,
    closed: watch::Receiver<bool>,
}

impl Server {
    /// Serves a connection, or refuses it.
    ///
    /// # Errors
    /// For want of descriptors: it is closed.
    async fn take(&mut self, stream: UnixStream) -> io::Result<()> {
        let place = match is_own(&stream) {
            true => &self.own_place,
            false => &self.places,
        };
        // One goes when the connection is asked to close, the other when it has.
        let (closed, open) = (self.closed.clone(), self.closed.clone());
        if let Ok(place) = Arc::clone(place).try_acquire_owned() {
            let routes = self.routes.clone();
            let peer = match peer_of(&stream).await {
                Err(error) if is_for_want(&error) => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "a connection ended early");
                    return Ok(());
                }
                Ok(peer) => peer,
            };
            tokio::spawn(async move {
                if let Err(error) = connection(stream, peer, routes, closed).await {
                    tracing::debug!(%error, "a connection ended early");
                }
                drop((place, open));
            });
        } else if let Some(place) = self.refusals.place().await {
            let may_be_http2 = self.routes.take_http2();
            tokio::spawn(async move {
                let refused = refuse(stream, may_be_http2, closed);
                let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refused).await;
                drop((place, open));
            });
        }
        Ok(())
    }

    /// Takes those whose connect(2) has succeeded, and has no more succeed: Linux refuses that to a listening socket that
    /// is shut down for reading, and still hands out by accept(2) what came before.
    async fn take_waiting(&mut self, listener: &UnixListener) -> io::Result<()> {
        /// What accept(2) says of such a socket when nobody is left: EAGAIN, or EINVAL.
        const ENDS: [io::ErrorKind; 2] = [io::ErrorKind::WouldBlock, io::ErrorKind::InvalidInput];
        let listener = StdListener::from(listener.as_fd().try_clone_to_owned()?);
        take_no_more(&listener)?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    self.take(UnixStream::from_std(stream)?).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if ENDS.contains(&error.kind()) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Who is at the other end, which takes another descriptor. accept(2) may have got the last one: until somebody gives
/// theirs back, for some time, no more are accepted, for of many that had one each none would ever have two.
async fn peer_of(stream: &UnixStream) -> io::Result<Peer> {
    const TRIES: usize = 10;
    for _ in 1..TRIES {
        match Peer::of(stream) {
            Err(error) if is_for_want(&error) => tokio::time::sleep(ACCEPT_PAUSE).await,
            found => return found,
        }
    }
    Peer::of(stream)
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

/// Answers one request with 503, whatever it is.
async fn refuse(
    stream: UnixStream,
    may_be_http2: bool,
    mut closing: watch::Receiver<bool>,
) -> Served {
    if spoken(&stream, &mut closing).await? == Version::HTTP_2 && may_be_http2 {
        return refuse_http2(stream, closing).await;
    }
    let socket = stream.as_fd().try_clone_to_owned()?;
    let connection = http1::Builder::new()
        .half_close(true)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service_fn(refused));
    tokio::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return Ok(served?),
        () = asked_to_close(&mut closing) => take_no_more(&socket)?,
    }
    Ok(connection.await?)
}

/// The same of a client that may send several, all of which are refused that come with the first.
async fn refuse_http2(stream: UnixStream, mut closing: watch::Receiver<bool>) -> Served {
    let asked = Arc::new(Notify::new());
    let heard = Arc::clone(&asked);
    let service = service_fn(move |request| {
        heard.notify_one();
        refused(request)
    });
    let connection =
        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return Ok(served?),
        () = asked.notified() => {}
        () = asked_to_close(&mut closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    Ok(connection.await?)
}

async fn refused(request: Request<Incoming>) -> Result<Response, Infallible> {
    let version = request.version();
    if !request.headers().contains_key(header::EXPECT) {
        unread::discard(request.into_body()).await;
    }
    let detail = "too many connections (max_connections): close some or try again";
    let mut response = Refusal::new(Code::TooManyConnections, detail).into_response();
    // HTTP/2 says it in a frame of its own.
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream as StdStream;
    use std::path::PathBuf;

    use axum::Router;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::domain::ExecutionId;

    /// Of one process, as the tests are, there is a place for one connection.
    const LIMITS: Limits = Limits {
        max_connections: 8,
        max_refusals: 1,
    };
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const ANSWER: &[u8] = b"HTTP/1.1 ";

    /// By RFC 9113: the preface, settings of which none is given, and the headers of `GET /`.
    const HTTP2_REQUEST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
        \x00\x00\x00\x04\x00\x00\x00\x00\x00\
        \x00\x00\x0e\x01\x05\x00\x00\x00\x01\
        \x82\x86\x84\x41\x09localhost";

    /// Serving on this thread: until a test waits, nothing is read, whatever it has sent.
    struct Serving {
        path: PathBuf,
        close: oneshot::Sender<()>,
        task: JoinHandle<()>,
    }

    impl Serving {
        fn start() -> Self {
            let path = std::env::temp_dir().join(format!("shelly-accept-{}", ExecutionId::new()));
            let listener = UnixListener::bind(&path).expect("a temporary directory");
            let (close, closed) = oneshot::channel::<()>();
            let closed = async { drop(closed.await) };
            let routes = Routes::of(Router::new()).with_grpc(Router::new());
            let serving = serve(listener, Backlog::Answered, routes, LIMITS, closed);
            let task = tokio::spawn(serving);
            Self { path, close, task }
        }

        async fn client(&self) -> UnixStream {
            UnixStream::connect(&self.path).await.expect("served")
        }

        /// Tells it to end, and waits until it has.
        async fn end(self) {
            drop(self.close);
            self.task.await.expect("it ends");
            assert!(StdStream::connect(&self.path).is_err());
            std::fs::remove_file(&self.path).expect("there");
        }
    }

    /// The second connection is one too many, and told so.
    #[tokio::test]
    async fn what_was_sent_by_the_end_is_answered_on_every_connection() {
        // Of the two that the connection is woken up for either may be looked at first.
        for _ in 0..32 {
            let serving = Serving::start();
            let mut used = serving.client().await;
            used.write_all(REQUEST).await.expect("taken");
            let mut first = [0; ANSWER.len()];
            used.read_exact(&mut first).await.expect("answered");

            let mut waiting = StdStream::connect(&serving.path).expect("served");
            waiting.write_all(REQUEST).expect("taken");
            assert_eq!(used.try_write(REQUEST).expect("taken"), REQUEST.len());
            serving.end().await;
            let mut answers = [Vec::new(), Vec::new()];
            used.read_to_end(&mut answers[0]).await.expect("closed");
            waiting.read_to_end(&mut answers[1]).expect("closed");
            for answer in answers {
                // In one of them the rest of the first answer comes before.
                let text = String::from_utf8_lossy(&answer);
                assert!(
                    answer.windows(ANSWER.len()).any(|part| part == ANSWER),
                    "{text:?}"
                );
            }
        }
    }

    /// A client of HTTP/2 that has sent one request by now and reads what comes, up to the end. Returns the first
    /// byte of the answer's headers, which is its status (RFC 7541, appendix A) where that is a usual one.
    async fn answer(mut stream: UnixStream) -> Option<u8> {
        const HEADERS: u8 = 1;
        const PING: u8 = 6;
        let mut answer = None;
        let mut head = [0; 9];
        while stream.read_exact(&mut head).await.is_ok() {
            let [a, b, c, kind, flags, ..] = head;
            let mut body = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            stream.read_exact(&mut body).await.expect("a whole frame");
            if kind == HEADERS {
                answer = body.first().copied();
            }
            if kind == PING && flags == 0 {
                let acknowledged = [&[0, 0, 8, PING, 1, 0, 0, 0, 0], &body[..]].concat();
                stream.write_all(&acknowledged).await.expect("taken");
            }
        }
        answer
    }

    #[tokio::test]
    async fn so_is_what_was_sent_on_a_new_connection_of_http2() {
        for turns in 0..8 {
            let serving = Serving::start();
            let mut client = serving.client().await;
            // By then it waits to be accepted, or for its first bytes, or has been read.
            let early = turns % 2;
            for _ in 0..turns / 2 {
                tokio::task::yield_now().await;
            }
            client
                .write_all(&HTTP2_REQUEST[..early])
                .await
                .expect("taken");
            let sent = client.try_write(&HTTP2_REQUEST[early..]).expect("taken");
            assert_eq!(early + sent, HTTP2_REQUEST.len());
            let ((), answer) = tokio::join!(serving.end(), answer(client));
            assert!(answer.is_some(), "in turn {turns}");
        }
    }

    #[tokio::test]
    async fn who_is_one_too_many_is_told_so_in_http2_as_well() {
        /// `:status: 404`, which has a number of its own.
        const NOT_FOUND: u8 = 0x80 | 13;
        let serving = Serving::start();
        let (mut first, mut second) = (serving.client().await, serving.client().await);
        first.write_all(HTTP2_REQUEST).await.expect("taken");
        second.write_all(HTTP2_REQUEST).await.expect("taken");
        let refused = answer(second).await;
        assert!(
            refused.is_some_and(|status| status != NOT_FOUND),
            "{refused:?}"
        );
        let ((), served) = tokio::join!(serving.end(), answer(first));
        assert_eq!(served, Some(NOT_FOUND));
    }
}
