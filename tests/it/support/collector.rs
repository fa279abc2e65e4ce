use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen, socket,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::wait::wait_for;

/// A collector that takes OTLP over HTTP at a port of this machine, reads what it gets with the messages
/// of OpenTelemetry, and answers as it is told.
pub struct Collector {
    port: u16,
    shared: Arc<Shared>,
}

/// A port that is taken and that nobody listens at.
pub struct Closed {
    socket: OwnedFd,
    port: u16,
}

/// What is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    Taken,
    /// All but so many are.
    Partly(i64),
    /// A status, with lines of its head.
    Status(u16, &'static str),
    /// Nothing, while the connection stays open.
    Silence,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Received {
    pub at: Instant,
    /// In lower case.
    pub head: String,
    pub body: Vec<u8>,
    pub message: ExportTraceServiceRequest,
    pub taken: bool,
}

#[derive(Default)]
struct Shared {
    received: Mutex<Vec<Received>>,
    replies: Mutex<VecDeque<Reply>>,
}

impl Closed {
    pub fn new() -> Self {
        let kind = SockType::Stream;
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, kind, flags, None).expect("a socket");
        let any = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
        bind(socket.as_raw_fd(), &any).expect("a port");
        let bound: SockaddrIn = getsockname(socket.as_raw_fd()).expect("bound");
        Self {
            socket,
            port: bound.port(),
        }
    }

    /// The configuration that names it.
    pub fn toml(&self) -> String {
        toml(self.port)
    }

    /// Somebody listens from now on.
    pub fn open(self) -> Collector {
        listen(&self.socket, Backlog::MAXCONN).expect("it listens");
        let shared = Arc::<Shared>::default();
        let (listener, serving) = (TcpListener::from(self.socket), Arc::clone(&shared));
        // Both end with the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.serve(stream));
            }
        });
        Collector {
            port: self.port,
            shared,
        }
    }
}

fn toml(port: u16) -> String {
    format!("[tracing]\notlp_endpoint = \"http://127.0.0.1:{port}\"\n")
}

impl Collector {
    pub fn start() -> Self {
        Closed::new().open()
    }

    /// The configuration that names it.
    pub fn toml(&self) -> String {
        toml(self.port)
    }

    /// Answers the next requests so, and those after them as one that takes everything.
    pub fn answer(&self, replies: impl IntoIterator<Item = Reply>) {
        lock(&self.shared.replies).extend(replies);
    }

    /// All requests so far.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.shared.received).clone()
    }

    /// The requests, once there are so many.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        wait_for("requests", || {
            let received = self.received();
            (received.len() >= count).then_some(received)
        })
    }

    /// The spans that were taken.
    pub fn spans(&self) -> Vec<Span> {
        let taken = self.received().into_iter().filter(|request| request.taken);
        taken.flat_map(|request| spans(&request.message)).collect()
    }

    /// Those of an execution, its own first, once they were taken.
    #[track_caller]
    pub fn spans_of(&self, execution: &str) -> Vec<Span> {
        wait_for("the spans of an execution", || {
            let mut spans = self.spans();
            spans.retain(|span| text(span, "shelly.execution.id").as_deref() == Some(execution));
            (!spans.is_empty()).then_some(spans)
        })
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some((head, body)) = read(&mut stream) {
            let message = ExportTraceServiceRequest::decode(&*body).expect("OTLP");
            let reply = lock(&self.replies).pop_front().unwrap_or(Reply::Taken);
            lock(&self.received).push(Received {
                at: Instant::now(),
                head,
                body,
                message,
                taken: matches!(reply, Reply::Taken | Reply::Partly(_)),
            });
            let partial = match reply {
                Reply::Partly(rejected_spans) => Some(ExportTracePartialSuccess {
                    rejected_spans,
                    error_message: "not all of them".to_owned(),
                }),
                Reply::Taken | Reply::Status(..) | Reply::Silence => None,
            };
            let answer = ExportTraceServiceResponse {
                partial_success: partial,
            };
            let (status, lines) = match reply {
                Reply::Taken | Reply::Partly(_) => (200, ""),
                Reply::Status(status, lines) => (status, lines),
                Reply::Silence => continue,
            };
            let answer = answer.encode_to_vec();
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/x-protobuf\r\n{lines}content-length: {}\r\n\r\n",
                answer.len()
            );
            let stream = stream.get_mut();
            // A daemon that ends does not wait for it.
            let _ = stream.write_all(&[head.as_bytes(), &answer].concat());
        }
    }
}

/// Request line and headers in lower case, and the body. `None` when there is nothing more.
fn read(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn spans(message: &ExportTraceServiceRequest) -> Vec<Span> {
    let resources = message.resource_spans.iter();
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    scopes.flat_map(|scope| scope.spans.clone()).collect()
}

/// An attribute, as text.
pub fn text(span: &Span, name: &str) -> Option<String> {
    attribute(&span.attributes, name)
}

/// The same among any.
pub fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let mut found = attributes.iter().filter(|attribute| attribute.key == name);
    let AnyValue { value } = found.next()?.value.clone()?;
    assert!(found.next().is_none(), "{name} is there once");
    match value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        Value::BoolValue(flag) => Some(flag.to_string()),
        other @ (Value::DoubleValue(_)
        | Value::BytesValue(_)
        | Value::ArrayValue(_)
        | Value::KvlistValue(_)
        | Value::StringValueStrindex(_)) => panic!("{name} is {other:?}"),
    }
}

/// Bytes as they are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic")
}
