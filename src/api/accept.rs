//! Accepts connections, within bounds, until it is told to stop, and loses none of them then.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::connection::{Routes, Served, asked_to_close, connection};
use super::peer::take_no_more;
use super::problem::{Code, Refusal};
use super::unread;

/// How long `accept` rests after it failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => server.take(stream).await,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
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
    async fn take(&mut self, stream: UnixStream) {
        let place = match is_own(&stream) {
            true => &self.own_place,
            false => &self.places,
        };
        // One goes when the connection is asked to close, the other when it has.
        let (closed, open) = (self.closed.clone(), self.closed.clone());
        if let Ok(place) = Arc::clone(place).try_acquire_owned() {
            let routes = self.routes.clone();
            tokio::spawn(async move {
                if let Err(error) = connection(stream, routes, closed).await {
                    tracing::debug!(%error, "a connection ended early");
                }
                drop((place, open));
            });
        } else if let Some(place) = self.refusals.place().await {
            tokio::spawn(async move {
                let refused = refuse(stream, closed);
                let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refused).await;
                drop((place, open));
            });
        }
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
                    self.take(UnixStream::from_std(stream)?).await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if ENDS.contains(&error.kind()) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
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
async fn refuse(stream: UnixStream, mut closing: watch::Receiver<bool>) -> Served {
    let service = service_fn(|request: Request<Incoming>| async {
        if !request.headers().contains_key(header::EXPECT) {
            unread::discard(request.into_body()).await;
        }
        let detail = "too many connections (max_connections): close some or try again";
        let mut response = Refusal::new(Code::TooManyConnections, detail).into_response();
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        Ok::<_, Infallible>(response)
    });
    let socket = stream.as_fd().try_clone_to_owned()?;
    let connection = http1::Builder::new()
        .half_close(true)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return Ok(served?),
        () = asked_to_close(&mut closing) => take_no_more(&socket)?,
    }
    Ok(connection.await?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream as StdStream;

    use axum::Router;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::oneshot;

    use super::*;
    use crate::domain::ExecutionId;

    const LIMITS: Limits = Limits {
        max_connections: 8,
        max_refusals: 1,
    };
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const ANSWER: &[u8] = b"HTTP/1.1 ";

    /// Serving is on this thread, too: until this waits, nothing is read, whatever has been sent. The second connection
    /// is one too many from this process, and told so.
    #[tokio::test]
    async fn what_was_sent_by_the_end_is_answered_on_every_connection() {
        let path = std::env::temp_dir().join(format!("shelly-accept-{}", ExecutionId::new()));
        // Of the two that the connection is woken up for either may be looked at first.
        for _ in 0..32 {
            let listener = UnixListener::bind(&path).expect("a temporary directory");
            let (close, closed) = oneshot::channel::<()>();
            let closed = async { drop(closed.await) };
            let routes = Routes::of(Router::new());
            let serving = serve(listener, Backlog::Answered, routes, LIMITS, closed);
            let serving = tokio::spawn(serving);
            let mut used = UnixStream::connect(&path).await.expect("served");
            used.write_all(REQUEST).await.expect("taken");
            let mut first = [0; ANSWER.len()];
            used.read_exact(&mut first).await.expect("answered");

            let mut waiting = StdStream::connect(&path).expect("served");
            waiting.write_all(REQUEST).expect("taken");
            assert_eq!(used.try_write(REQUEST).expect("taken"), REQUEST.len());
            drop(close);
            serving.await.expect("it ends");
            assert!(StdStream::connect(&path).is_err());
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
            std::fs::remove_file(&path).expect("there");
        }
    }

    /// A client of HTTP/2 that has sent one request by now and reads what comes. Returns whether that is an answer.
    async fn is_answered(mut stream: UnixStream) -> bool {
        const HEADERS: u8 = 1;
        const PING: u8 = 6;
        let mut is_answered = false;
        let mut head = [0; 9];
        while stream.read_exact(&mut head).await.is_ok() {
            let [a, b, c, kind, flags, ..] = head;
            let mut body = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            stream.read_exact(&mut body).await.expect("a whole frame");
            is_answered |= kind == HEADERS;
            if kind == PING && flags == 0 {
                let acknowledged = [&[0, 0, 8, PING, 1, 0, 0, 0, 0], &body[..]].concat();
                stream.write_all(&acknowledged).await.expect("taken");
            }
        }
        is_answered
    }

    /// By RFC 9113: the preface, settings of which none is given, and the headers of `GET /`.
    #[tokio::test]
    async fn so_is_what_was_sent_on_a_new_connection_of_http2() {
        let path = std::env::temp_dir().join(format!("shelly-accept-{}", ExecutionId::new()));
        let request = [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            &[0, 0, 0, 4, 0, 0, 0, 0, 0],
            &[0, 0, 14, 1, 5, 0, 0, 0, 1],
            b"\x82\x86\x84\x41\x09localhost",
        ]
        .concat();
        for turns in 0..8 {
            let listener = UnixListener::bind(&path).expect("a temporary directory");
            let (close, closed) = oneshot::channel::<()>();
            let closed = async { drop(closed.await) };
            let routes = Routes::of(Router::new()).with_grpc(Router::new());
            let serving = serve(listener, Backlog::Answered, routes, LIMITS, closed);
            let serving = tokio::spawn(serving);
            let mut client = UnixStream::connect(&path).await.expect("served");
            // By then it waits to be accepted, or for its first bytes, or has been read.
            let early = turns % 2;
            for _ in 0..turns / 2 {
                tokio::task::yield_now().await;
            }
            client.write_all(&request[..early]).await.expect("taken");
            let sent = client.try_write(&request[early..]).expect("taken");
            assert_eq!(early + sent, request.len());
            drop(close);
            let (served, is_answered) = tokio::join!(serving, is_answered(client));
            served.expect("it ends");
            assert!(is_answered, "in turn {turns}");
            std::fs::remove_file(&path).expect("there");
        }
    }
}
