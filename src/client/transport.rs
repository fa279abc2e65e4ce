//! One HTTP request over the Unix socket and its answer, bounded and with every failure named.
//! Knows hyper; knows nothing of calls and executions.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy;
use hyperlocal::{UnixClientExt, UnixConnector};

use super::answer::Answer;
use super::error::ClientError;
use super::sse::MAX_FRAME_BYTES;

/// What an answer that is read whole may have; a body is about as large as the last frame of a
/// stream.
const MAX_BODY_BYTES: usize = MAX_FRAME_BYTES;

/// One request, before it is sent.
#[derive(Debug)]
pub(super) struct Ask {
    method: Method,
    target: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl Ask {
    /// `segments` are encoded, so that an id or a name can never reach another route.
    pub(super) fn new(method: Method, segments: &[&str]) -> Self {
        let mut target = String::new();
        for segment in segments {
            target.push('/');
            encode(segment, &mut target);
        }
        Self {
            method,
            target,
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    /// A member of the query; the value is encoded.
    pub(super) fn param(mut self, name: &str, value: &str) -> Self {
        let separator = if self.target.contains('?') { '&' } else { '?' };
        self.target.push(separator);
        self.target.push_str(name);
        self.target.push('=');
        encode(value, &mut self.target);
        self
    }

    /// The same where there is a value.
    pub(super) fn maybe(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.param(name, value),
            None => self,
        }
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(super) fn json(self, body: Vec<u8>) -> Self {
        let typed = self.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self {
            body: body.into(),
            ..typed
        }
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// An answer whose head has come.
#[derive(Debug)]
pub(super) struct Head {
    response: Response<Incoming>,
    pub(super) during: String,
    socket: PathBuf,
}

impl Head {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The media type without its parameters, in lower case.
    pub(super) fn media_type(&self) -> String {
        let value = self
            .response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        value
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    }

    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    }

    pub(super) fn into_body(self) -> Body {
        Body {
            incoming: self.response.into_body(),
            during: self.during,
            socket: self.socket,
        }
    }

    /// Reads a JSON body to its end.
    pub(super) async fn text(self) -> Result<String, ClientError> {
        let (status, media_type) = (self.status().as_u16(), self.media_type());
        let Body {
            incoming,
            during,
            socket,
        } = self.into_body();
        let collected = Limited::new(incoming, MAX_BODY_BYTES).collect().await;
        let bytes = match collected {
            Ok(collected) => collected.to_bytes(),
            Err(source) if source.is::<http_body_util::LengthLimitError>() => {
                return Err(ClientError::AnswerTooLarge {
                    during,
                    limit: MAX_BODY_BYTES,
                });
            }
            Err(source) => {
                return Err(ClientError::Interrupted {
                    socket,
                    during,
                    source,
                });
            }
        };
        if !matches!(
            media_type.as_str(),
            "application/json" | "application/problem+json"
        ) {
            let found = excerpt(&media_type, &bytes);
            return Err(ClientError::UnexpectedAnswer {
                during,
                status,
                found,
            });
        }
        String::from_utf8(bytes.into()).map_err(|_| ClientError::UnexpectedAnswer {
            during,
            status,
            found: "a body that is not UTF-8".to_owned(),
        })
    }

    /// Reads the body as an answer to a call.
    pub(super) async fn answer(self) -> Result<Answer, ClientError> {
        let (status, during) = (self.status().as_u16(), self.during.clone());
        let text = self.text().await?;
        Answer::parse(status, text).map_err(|source| ClientError::Malformed { during, source })
    }

    /// Lets `expected` through and turns every other status into the refusal it is.
    pub(super) async fn expect(self, expected: &[StatusCode]) -> Result<Self, ClientError> {
        if expected.contains(&self.status()) {
            return Ok(self);
        }
        let (status, during) = (self.status(), self.during.clone());
        if status.is_success() || self.media_type() != "application/problem+json" {
            let found = format!("`{}`", self.media_type());
            return Err(ClientError::UnexpectedAnswer {
                during,
                status: status.as_u16(),
                found,
            });
        }
        Err(ClientError::Refused {
            answer: Box::new(self.answer().await?),
        })
    }
}

/// A body that is still coming.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) incoming: Incoming,
    during: String,
    socket: PathBuf,
}

impl Body {
    pub(super) fn broken(&self, source: hyper::Error) -> ClientError {
        ClientError::Interrupted {
            socket: self.socket.clone(),
            during: self.during.clone(),
            source: source.into(),
        }
    }
}

/// Connections to one socket, kept open between requests.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    socket: PathBuf,
    pool: legacy::Client<UnixConnector, Full<Bytes>>,
}

impl Transport {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            pool: legacy::Client::unix(),
        }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) async fn send(&self, ask: Ask) -> Result<Head, ClientError> {
        let during = ask.name();
        let mut request = Request::new(Full::new(ask.body));
        *request.method_mut() = ask.method;
        *request.uri_mut() = self.uri(&ask.target)?;
        // Without it the host would be the socket's path in hexadecimal.
        request
            .headers_mut()
            .insert(HOST, HeaderValue::from_static("localhost"));
        request.headers_mut().extend(ask.headers);
        match self.pool.request(request).await {
            Ok(response) => Ok(Head {
                response,
                during,
                socket: self.socket.clone(),
            }),
            Err(error) => Err(self.failed(during, error)),
        }
    }

    fn uri(&self, target: &str) -> Result<hyper::Uri, ClientError> {
        // hyperlocal would replace what is not UTF-8 and connect to another path.
        if self.socket.to_str().is_none() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "the path is not UTF-8");
            return Err(ClientError::CannotConnect {
                socket: self.socket.clone(),
                source,
            });
        }
        Ok(hyperlocal::Uri::new(&self.socket, target).into())
    }

    fn failed(&self, during: String, error: legacy::Error) -> ClientError {
        let socket = self.socket.clone();
        if error.is_connect()
            && let Some(cause) = io_cause(&error)
        {
            let source = io::Error::from_raw_os_error(cause.raw_os_error().unwrap_or_default());
            let source = if cause.raw_os_error().is_some() {
                source
            } else {
                io::Error::new(cause.kind(), cause.to_string())
            };
            return ClientError::CannotConnect { socket, source };
        }
        ClientError::Interrupted {
            socket,
            during,
            source: error.into(),
        }
    }
}

fn io_cause(error: &legacy::Error) -> Option<&io::Error> {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return Some(io);
        }
        next = cause.source();
    }
    None
}

fn encode(text: &str, target: &mut String) {
    use fmt::Write;
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~' | b'.') {
            target.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(target, "%{byte:02X}");
        }
    }
}

fn excerpt(media_type: &str, bytes: &[u8]) -> String {
    const SHOWN: usize = 80;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    format!("`{media_type}` beginning with {text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cannot_leave_their_place() {
        let ask = Ask::new(Method::GET, &["tools", "a/b?c d%é"]);
        assert_eq!(ask.name(), "GET /tools/a%2Fb%3Fc%20d%25%C3%A9");
    }

    #[test]
    fn queries_follow_the_path() {
        let ask = Ask::new(Method::GET, &["executions", "1"]).param("wait", "5");
        assert_eq!(ask.name(), "GET /executions/1?wait=5");
        let ask = ask.maybe("text", Some("a&b=c d")).maybe("tool", None);
        assert_eq!(ask.name(), "GET /executions/1?wait=5&text=a%26b%3Dc%20d");
    }

    #[tokio::test]
    async fn a_missing_socket_is_named_with_the_kernels_word() {
        let transport = Transport::new("/nonexistent/executor.sock".into());
        let error = transport
            .send(Ask::new(Method::GET, &["health"]))
            .await
            .expect_err("fails");
        let ClientError::CannotConnect { source, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(source.kind(), io::ErrorKind::NotFound);
        assert!(
            error.to_string().contains("`/nonexistent/executor.sock`"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_path_that_is_not_utf8_is_refused_rather_than_replaced() {
        use std::os::unix::ffi::OsStringExt;
        let socket = PathBuf::from(std::ffi::OsString::from_vec(b"/tmp/\xff.sock".to_vec()));
        let error = Transport::new(socket)
            .send(Ask::new(Method::GET, &["health"]))
            .await
            .expect_err("fails");
        assert!(
            matches!(error, ClientError::CannotConnect { .. }),
            "{error}"
        );
    }
}
