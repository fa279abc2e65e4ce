use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::dial::{DialError, dial};
use super::seen::Closed;
use super::{Rules, Seen};
use crate::config::Destination;
use crate::domain::{ConnectionResult, ExecutionId, Secrets};

/// How long a request's headers may take, and a connection be idle between two.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// How much is read at once of what answers, in bytes, and how long its headers may be: who sends interim
/// answers without end (RFC 9110, 15.2) is not to have the daemon look at hundreds of thousands of them
/// in one turn.
const BUFFER_BYTES: usize = 64 * 1024;

/// Headers that are about one connection only (RFC 9110, 7.6.1), besides those that `Connection` names.
const OF_A_CONNECTION: [HeaderName; 6] = [
    header::CONNECTION,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The same without constants.
const OF_A_CONNECTION_TOO: [&str; 2] = ["keep-alive", "proxy-connection"];

type Body = Either<Full<Bytes>, Incoming>;

/// Answers an execution's requests. Cheap to clone.
#[derive(Clone)]
pub(super) struct Proxy {
    rules: Arc<Rules>,
    seen: Arc<Seen>,
    /// What is masked in the log, once that is known.
    secrets: Arc<OnceLock<Arc<Secrets>>>,
    lookups: Arc<Semaphore>,
    id: ExecutionId,
}

/// A connection that becomes a tunnel once the answer is out.
type Tunnel = Arc<Mutex<Option<(OnUpgrade, TcpStream)>>>;

/// What carries requests to their hosts. Dropped with the connection that they came by, for one that is
/// held up by its host would not notice that nobody is there any more.
type Drivers = Mutex<JoinSet<()>>;

/// How many names one execution has looked up at once.
const LOOKUPS: usize = 4;

/// How much of what is wrong is told, in characters.
const LINE: usize = 300;

/// Why a request is not passed on.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("{0}")]
    Malformed(String),
    #[error("the execution is over")]
    Over,
    #[error("{to} does not answer as HTTP does: {source}")]
    Garbled {
        to: Destination,
        source: hyper::Error,
    },
}

impl Proxy {
    pub(super) fn new(
        rules: Rules,
        seen: Arc<Seen>,
        secrets: Arc<OnceLock<Arc<Secrets>>>,
        id: ExecutionId,
    ) -> Self {
        Self {
            rules: Arc::new(rules),
            seen,
            secrets,
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            id,
        }
    }

    /// Serves one connection to its end.
    pub(super) async fn serve(&self, stream: UnixStream) {
        let (tunnel, drivers) = (Tunnel::default(), Drivers::default());
        let service = service_fn(|request| {
            let (tunnel, drivers) = (Arc::clone(&tunnel), &drivers);
            async move { Ok::<_, Infallible>(self.answer(request, &tunnel, drivers).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
        if let Err(error) = served.as_ref()
            && error.is_parse()
        {
            // What is no HTTP never becomes a request; hyper has answered it.
            drop(self.malformed(error.to_string()));
        }
        let tunnel = tunnel.lock().take();
        let carried = match (served, tunnel) {
            (Ok(()), Some((upgrade, mut outside))) => match upgrade.await {
                Ok(inside) => copy_bidirectional(&mut TokioIo::new(inside), &mut outside)
                    .await
                    .map(drop)
                    .map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            },
            (served, _) => served.map_err(|error| error.to_string()),
        };
        if let Err(error) = carried {
            tracing::debug!(execution_id = %self.id, error, "a connection out of a sandbox ended early");
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        tunnel: &Tunnel,
        drivers: &Drivers,
    ) -> Response<Body> {
        let answered = if request.method() == Method::CONNECT {
            self.connect(request, tunnel).await
        } else {
            self.forward(request, drivers).await
        };
        let answered = match answered {
            Err(Refusal::Malformed(detail)) => Err(self.malformed(detail)),
            answered => answered,
        };
        answered.unwrap_or_else(|refusal| refusal.response())
    }

    /// A tunnel to `host:port` (RFC 9110, 9.3.6).
    async fn connect(
        &self,
        mut request: Request<Incoming>,
        tunnel: &Tunnel,
    ) -> Result<Response<Body>, Refusal> {
        let wanted = request.uri().authority().map(ToString::to_string);
        // Who adds a user and a password wants them in no log.
        let wanted = wanted.filter(|wanted| !wanted.contains('@'));
        let wanted = wanted.ok_or_else(|| {
            Refusal::Malformed("expected CONNECT host:port and nothing besides".to_owned())
        })?;
        let outside = self.dial(&destination(&wanted)?).await?;
        let upgrade = hyper::upgrade::on(&mut request);
        *tunnel.lock() = Some((upgrade, outside));
        Ok(Response::new(Either::Left(Full::default())))
    }

    /// A request for a URL (RFC 9112, 3.2.2), made anew for the host of that.
    async fn forward(
        &self,
        mut request: Request<Incoming>,
        drivers: &Drivers,
    ) -> Result<Response<Body>, Refusal> {
        let uri = request.uri();
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            let detail =
                "this is a proxy: expected CONNECT host:port, or a URL that begins with http://";
            return Err(Refusal::Malformed(detail.to_owned()));
        };
        if *scheme != Scheme::HTTP {
            let detail = format!("{scheme} is not passed on: expected http, or CONNECT");
            return Err(Refusal::Malformed(detail));
        }
        let to = destination(&format!("{}:{}", authority.host(), port(authority)))?;
        let host = match authority.port() {
            Some(_) => HeaderValue::from_str(&format!("{}:{}", authority.host(), to.port)),
            None => HeaderValue::from_str(authority.host()),
        };
        let host = host.map_err(|error| Refusal::Malformed(error.to_string()))?;
        let path = uri.path_and_query().cloned();
        let path = path.filter(|path| !path.as_str().is_empty());
        *request.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
        remove_those_of_a_connection(request.headers_mut());
        request.headers_mut().insert(header::HOST, host);
        let outside = self.dial(&to).await?;
        let garbled = |source| Refusal::Garbled { to, source };
        let passed = async {
            let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
                .max_buf_size(BUFFER_BYTES)
                .handshake(TokioIo::new(outside))
                .await?;
            drive(drivers, connection);
            sender.send_request(request).await
        };
        let mut response = passed.await.map_err(garbled)?;
        remove_those_of_a_connection(response.headers_mut());
        Ok(response.map(Either::Right))
    }

    async fn dial(&self, to: &Destination) -> Result<TcpStream, Refusal> {
        if self.seen.is_closed() {
            return Err(Refusal::Over);
        }
        let dialled = dial(&self.rules, to, &self.lookups).await;
        let result = match &dialled {
            Ok(_) => ConnectionResult::Connected,
            Err(DialError::Unknown { .. } | DialError::Failed { .. }) => ConnectionResult::Failed,
            Err(DialError::NotListed(_) | DialError::Private { .. }) => ConnectionResult::Refused,
        };
        // What has been dialled while it ended is not used.
        let told = self.tell(Some(to), result, dialled.as_ref().err());
        told.map_err(|Closed| Refusal::Over)?;
        Ok(dialled?)
    }

    /// The refusal of what names no destination, which is counted as well.
    fn malformed(&self, detail: String) -> Refusal {
        match self.tell(None, ConnectionResult::Refused, Some(&detail)) {
            Ok(()) => Refusal::Malformed(detail),
            Err(Closed) => Refusal::Over,
        }
    }

    /// Counts one. The log has a line for the first of each kind, and no longer than a line: whoever asks may ask
    /// often.
    fn tell(
        &self,
        to: Option<&Destination>,
        result: ConnectionResult,
        error: Option<&impl ToString>,
    ) -> Result<(), Closed> {
        if self.seen.add(to, result)? {
            tracing::info!(
                execution_id = %self.id,
                to = to.map(|to| self.masked(to)),
                result = result.as_str(),
                error = error.map(|error| line(&self.masked(error))),
                "a connection out of a sandbox"
            );
        }
        Ok(())
    }

    fn masked(&self, told: &impl ToString) -> String {
        let told = told.to_string();
        match self.secrets.get() {
            Some(secrets) => secrets.mask_text(&told),
            None => told,
        }
    }
}

impl Refusal {
    /// In the words of RFC 9209, and for people.
    fn response(&self) -> Response<Body> {
        let (status, error) = match self {
            Self::Malformed(_) => (StatusCode::BAD_REQUEST, "http_request_error"),
            Self::Over => (StatusCode::SERVICE_UNAVAILABLE, "proxy_internal_response"),
            Self::Dial(DialError::NotListed(_)) => (StatusCode::FORBIDDEN, "http_request_denied"),
            Self::Dial(DialError::Private { .. }) => {
                (StatusCode::FORBIDDEN, "destination_ip_prohibited")
            }
            Self::Dial(DialError::Unknown { .. }) => (StatusCode::BAD_GATEWAY, "dns_error"),
            Self::Dial(DialError::Failed { source, .. })
                if source.kind() == std::io::ErrorKind::TimedOut =>
            {
                (StatusCode::GATEWAY_TIMEOUT, "connection_timeout")
            }
            Self::Dial(DialError::Failed { .. }) => {
                (StatusCode::BAD_GATEWAY, "destination_unavailable")
            }
            Self::Garbled { .. } => (StatusCode::BAD_GATEWAY, "http_protocol_error"),
        };
        let mut response = Response::new(Either::Left(Full::from(format!("{self}\n"))));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, text);
        if let Ok(value) = HeaderValue::from_str(&format!("shelly-executord; error={error}")) {
            headers.insert("proxy-status", value);
        }
        response
    }
}

fn drive(drivers: &Drivers, connection: impl Future<Output = hyper::Result<()>> + Send + 'static) {
    let mut drivers = drivers.lock();
    while drivers.try_join_next().is_some() {}
    // How it ended is in the answer.
    drivers.spawn(async move { drop(connection.await) });
}

/// What is asked for.
fn destination(wanted: &str) -> Result<Destination, Refusal> {
    let parsed: Result<Destination, String> = wanted.parse();
    parsed.map_err(|error| Refusal::Malformed(line(&error)))
}

/// The port of a URL as it is written: `http` has none for one that is too large, and that is not the default.
fn port(authority: &Authority) -> &str {
    let (_, host_and_port) = authority
        .as_str()
        .rsplit_once('@')
        .unwrap_or(("", authority.as_str()));
    let port = host_and_port.strip_prefix(authority.host());
    let port = port
        .and_then(|rest| rest.strip_prefix(':'))
        .unwrap_or_default();
    if port.is_empty() { "80" } else { port }
}

fn line(text: &str) -> String {
    text.chars().take(LINE).collect()
}

fn remove_those_of_a_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let plain = OF_A_CONNECTION_TOO.map(HeaderName::from_static);
    for name in named.iter().chain(&OF_A_CONNECTION).chain(&plain) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What is answered to `request`, and what is counted.
    async fn asked(request: &str) -> (String, Vec<(String, ConnectionResult)>) {
        let rules = Rules {
            destinations: vec!["127.0.0.1:80".parse().expect("valid")],
            ..Rules::default()
        };
        let seen = Arc::new(Seen::default());
        let proxy = Proxy::new(rules, Arc::clone(&seen), Arc::default(), ExecutionId::new());
        let (mut inside, outside) = UnixStream::pair().expect("made");
        let asks = async {
            inside.write_all(request.as_bytes()).await.expect("written");
            inside.shutdown().await.expect("shut down");
            let mut answer = String::new();
            inside.read_to_string(&mut answer).await.expect("answered");
            answer
        };
        let (answer, ()) = tokio::join!(asks, proxy.serve(outside));
        let counted = seen.close().into_iter();
        (
            answer,
            counted.map(|known| (known.to, known.result)).collect(),
        )
    }

    #[tokio::test]
    async fn what_names_no_destination_is_refused_and_counted() {
        for line in [
            "GET http://127.0.0.1:99999/ HTTP/1.1",
            "GET http://127.0.0.1:0/ HTTP/1.1",
            "GET http://2130706433/ HTTP/1.1",
            "GET ftp://127.0.0.1/ HTTP/1.1",
            "GET / HTTP/1.1",
            "CONNECT 127.0.0.1:99999 HTTP/1.1",
            "CONNECT user@127.0.0.1:80 HTTP/1.1",
            "CONNECT 127.0.0.1 HTTP/1.1",
            "no HTTP at all",
        ] {
            let (answer, counted) = asked(&format!("{line}\r\nHost: h\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{line}: {answer}");
            let malformed = ("malformed".to_owned(), ConnectionResult::Refused);
            assert_eq!(counted, [malformed], "{line}");
        }
    }

    #[tokio::test]
    async fn a_url_without_a_port_means_that_of_http() {
        for (url, to) in [
            ("http://h", "h:80"),
            ("http://h:/", "h:80"),
            ("http://u:p@H:81/x", "h:81"),
            ("http://[::1]/", "[::1]:80"),
            ("http://u@[::1]:82/", "[::1]:82"),
        ] {
            let (answer, counted) = asked(&format!("GET {url} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{url}: {answer}");
            assert_eq!(counted, [(to.to_owned(), ConnectionResult::Refused)]);
        }
    }
}
