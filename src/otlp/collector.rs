//! One request to a collector, and what its answer comes to (the specification of OTLP, "OTLP/HTTP Response").

use std::error::Error;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::net::TcpStream;

use super::{ExecutionSpan, message};
use crate::config::TracingConfig;
use crate::domain::with_causes;

/// How long one request may take, its answer included (`OTEL_EXPORTER_OTLP_TIMEOUT`).
const ATTEMPT: Duration = Duration::from_secs(10);

/// How much is read at once, in bytes: who sends interim answers without end (RFC 9110, 15.2) is not to
/// have the daemon look at hundreds of thousands of them in one turn.
const BUFFER_BYTES: usize = 16 * 1024;

/// How much of an answer is read, in bytes: a sentence is what it says, if anything.
const ANSWER_BYTES: usize = 64 * 1024;

/// How much of that sentence is logged, in characters.
const SENTENCE: usize = 200;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("shelly-executord/", env!("CARGO_PKG_VERSION")));

/// The port of a URL that names none.
const PORT: u16 = 80;

/// A collector and what is said to it each time, over a connection of its own: one in five seconds costs
/// less than to keep one.
#[derive(Debug)]
pub(super) struct Collector {
    uri: Uri,
    headers: HeaderMap,
    resource: Resource,
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It has the spans, but for so many that it does not want.
    Taken { refused: usize, why: String },
    /// It does not want them, and will not.
    Refused(String),
    /// Another time it may take them.
    Later {
        why: String,
        /// How long it asks to be left alone.
        after: Option<Duration>,
    },
}

impl Collector {
    /// The one that is configured, if there is one.
    ///
    /// # Errors
    /// When its URL or a header is none, which the configuration should have refused.
    pub(super) fn of(
        config: &TracingConfig,
        instance: Option<&str>,
    ) -> Result<Option<Self>, Box<dyn Error>> {
        let Some(endpoint) = &config.otlp_endpoint else {
            return Ok(None);
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let mut value = HeaderValue::from_str(value)?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(name)?, value);
        }
        let uri: Uri = endpoint.traces().parse()?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        headers.insert(HOST, HeaderValue::from_str(authority)?);
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(CONTENT_TYPE, PROTOBUF);
        headers.insert(USER_AGENT, AGENT);
        Ok(Some(Self {
            uri,
            headers,
            resource: message::resource(&config.service_name, instance),
        }))
    }

    /// Where it is.
    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// What is sent to have it take these.
    pub(super) fn body(&self, executions: &[ExecutionSpan]) -> Bytes {
        let request = ExportTraceServiceRequest {
            resource_spans: vec![message::spans(self.resource.clone(), executions)],
        };
        request.encode_to_vec().into()
    }

    /// Sends it.
    pub(super) async fn post(&self, body: Bytes) -> Answer {
        match tokio::time::timeout(ATTEMPT, self.exchange(body)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => later(with_causes(&*error)),
            Err(_) => later(format!("no answer within {} s", ATTEMPT.as_secs())),
        }
    }

    async fn exchange(&self, body: Bytes) -> Result<Answer, Box<dyn Error + Send + Sync>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.path().parse()?;
        *request.headers_mut() = self.headers.clone();
        let host = self.uri.host().unwrap_or_default();
        // An IPv6 address stands in brackets there and nowhere else.
        let host = host.trim_matches(['[', ']']);
        let port = self.uri.port_u16().unwrap_or(PORT);
        let stream = TcpStream::connect((host, port)).await?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await?;
        let exchange = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES).collect().await;
            // What it answers is in the status; the rest only says more.
            let body = body.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
            Ok(read(head.status, &head.headers, body))
        };
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            // It has ended, which whoever waits for an answer is told as well.
            _ = connection => exchange.await,
        }
    }
}

fn read(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Answer {
    if status.is_success() {
        let answer = ExportTraceServiceResponse::decode(body).unwrap_or_default();
        let partial = answer.partial_success.unwrap_or_default();
        return Answer::Taken {
            refused: usize::try_from(partial.rejected_spans).unwrap_or(0),
            why: sentence(&partial.error_message),
        };
    }
    let said = tonic_types::Status::decode(body).unwrap_or_default();
    let why = match sentence(&said.message) {
        said if said.is_empty() => format!("it answers {status}"),
        said => format!("it answers {status}: {said}"),
    };
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Answer::Later {
            why,
            after: retry_after(headers, SystemTime::now()),
        },
        _ => Answer::Refused(why),
    }
}

/// `Retry-After`: seconds or a date (RFC 9110, section 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(secs) = text.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

fn later(why: String) -> Answer {
    Answer::Later { why, after: None }
}

/// What somebody else says, for the log.
fn sentence(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(SENTENCE).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    fn answer(status: u16, retry_after: Option<&'static str>, body: Vec<u8>) -> Answer {
        let status = StatusCode::from_u16(status).expect("a status");
        let value = retry_after.map(HeaderValue::from_static);
        let headers = value
            .map(|value| (RETRY_AFTER, value))
            .into_iter()
            .collect();
        read(status, &headers, body.into())
    }

    #[test]
    fn an_answer_is_what_the_specification_says() {
        let taken = Answer::Taken {
            refused: 0,
            why: String::new(),
        };
        assert_eq!(answer(200, None, Vec::new()), taken);
        // An answer in JSON, say: it is a 200 all the same.
        assert_eq!(answer(200, None, b"{\"x\": 1}".to_vec()), taken);
        let partial = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 3,
                error_message: "too\nold".to_owned(),
            }),
        };
        let expected = Answer::Taken {
            refused: 3,
            why: "too old".to_owned(),
        };
        assert_eq!(answer(200, None, partial.encode_to_vec()), expected);
        for status in [400, 401, 404, 413, 500, 501, 301] {
            let answer = answer(status, Some("1"), Vec::new());
            assert!(matches!(answer, Answer::Refused(_)), "{status}");
        }
        for status in [429, 502, 503, 504] {
            let Answer::Later { why, after } = answer(status, Some("7"), Vec::new()) else {
                panic!("{status}");
            };
            assert!(why.contains(&status.to_string()), "{why}");
            assert_eq!(after, Some(Duration::from_secs(7)));
        }
        let status = tonic_types::Status {
            message: "no such tenant".to_owned(),
            ..Default::default()
        };
        let Answer::Refused(why) = answer(400, None, status.encode_to_vec()) else {
            panic!("refused");
        };
        assert_eq!(why, "it answers 400 Bad Request: no such tenant");
    }

    #[test]
    fn a_date_says_when_to_come_again() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777 - 9);
        for (text, expected) in [
            (
                "Sun, 06 Nov 1994 08:49:37 GMT",
                Some(Duration::from_secs(9)),
            ),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(Duration::ZERO)),
            ("soon", None),
            ("-1", None),
        ] {
            let value = HeaderValue::from_static(text);
            let headers = [(RETRY_AFTER, value)].into_iter().collect();
            assert_eq!(retry_after(&headers, now), expected, "{text}");
        }
    }
}
