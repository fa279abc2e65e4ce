//! The load client: HTTP/1.1 keep-alive over a Unix socket, hand-written so that
//! its own cost is a write, a read and a look at the head of the answer.
//!
//! One client blocks. Many clients are one `epoll` loop, not threads: on two
//! cores, 256 threads would take a context switch per answer away from the
//! commands, where one loop picks up all answers that came in meanwhile at once.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Fallible;

/// No answer in this time is a daemon that hangs. The longest request waits for 256 others.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request, written once and sent many times.
pub struct Request(Vec<u8>);

impl Request {
    pub fn get(path: &str) -> Self {
        Self(format!("GET {path} HTTP/1.1\r\nHost: shelly\r\n\r\n").into_bytes())
    }

    /// A call of the bash tool; `headers` are whole lines.
    pub fn execute(command: &str, headers: &[&str]) -> Self {
        Self::call("/execute", command, headers)
    }

    /// The same call, to be judged and not run.
    pub fn explain(command: &str) -> Self {
        Self::call("/permissions/explain", command, &[])
    }

    /// A call as it is.
    pub fn of(call: &Value) -> Self {
        Self::post("/execute", call, &[])
    }

    /// A call of any tool.
    pub fn tool(name: &str, input: &Value) -> Self {
        Self::post("/execute", &json!({"name": name, "input": input}), &[])
    }

    fn call(path: &str, command: &str, headers: &[&str]) -> Self {
        let body = json!({"name": "bash", "input": {"command": command}});
        Self::post(path, &body, headers)
    }

    fn post(path: &str, body: &Value, headers: &[&str]) -> Self {
        let body = body.to_string();
        let headers: String = headers
            .iter()
            .map(|header| format!("{header}\r\n"))
            .collect();
        let length = body.len();
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: shelly\r\nContent-Type: application/json\r\n");
        Self(format!("{head}{headers}Content-Length: {length}\r\n\r\n{body}").into_bytes())
    }
}

/// A whole answer, borrowed from its connection.
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

impl Answer<'_> {
    /// The answer itself if its status is the expected one, else an error that shows it.
    pub fn expect(self, status: u16) -> Fallible<Self> {
        if self.status == status {
            return Ok(self);
        }
        let shown = String::from_utf8_lossy(&self.body[..self.body.len().min(400)]);
        Err(format!("status {} instead of {status}: {shown}", self.status).into())
    }

    /// Fails unless this is the answer of a command that exited with 0.
    pub fn expect_success(self) -> Fallible<()> {
        let answer = self.expect(200)?;
        let body: serde_json::Value = serde_json::from_slice(answer.body)?;
        match body["exit_code"].as_i64() {
            Some(0) => Ok(()),
            _ => Err(format!("the command failed: {body}").into()),
        }
    }
}

/// A persistent connection.
pub struct Connection {
    stream: UnixStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Connection {
    pub fn open(socket: &Path) -> Fallible<Self> {
        let stream = UnixStream::connect(socket)
            .map_err(|error| format!("cannot connect to {}: {error}", socket.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            buffer: vec![0; 1 << 16],
            filled: 0,
        })
    }

    /// Sends a request and blocks until its answer is there.
    pub fn exchange(&mut self, request: &Request) -> Fallible<Answer<'_>> {
        self.send(request)?;
        loop {
            self.read()?;
            if let Some(extent) = Extent::of(&self.buffer[..self.filled])? {
                return Ok(Answer {
                    status: extent.status,
                    body: &self.buffer[extent.body_start..extent.end],
                });
            }
        }
    }

    fn send(&mut self, request: &Request) -> Fallible<()> {
        self.filled = 0;
        Ok(self.stream.write_all(&request.0)?)
    }

    fn read(&mut self) -> Fallible<()> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.filled * 4, 0);
        }
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => Err("the daemon closed the connection".into()),
            Ok(length) => {
                self.filled += length;
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(format!("no answer within {PATIENCE:?}").into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Where an answer begins and ends in a buffer.
struct Extent {
    status: u16,
    body_start: usize,
    end: usize,
}

impl Extent {
    /// `None` while the answer is incomplete. Only answers with a length: the daemon knows the length
    /// of every body that is measured here, and a chunked one would be worth hearing about.
    fn of(bytes: &[u8]) -> Fallible<Option<Self>> {
        let Some(head_length) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = std::str::from_utf8(&bytes[..head_length])?;
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|status| status.parse().ok());
        let length = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.trim().parse::<usize>().ok());
        let (Some(status), Some(length)) = (status, length) else {
            return Err(format!("an answer without status or length:\n{head}").into());
        };
        let body_start = head_length + 4;
        let end = body_start + length;
        Ok((bytes.len() >= end).then_some(Self {
            status,
            body_start,
            end,
        }))
    }
}

/// The body of an answer whose length nobody knows beforehand, such as a stream of events. In
/// HTTP/1.0 it ends with the connection.
pub fn whole(socket: &Path, path: &str) -> Fallible<String> {
    let mut connection = Connection::open(socket)?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: shelly\r\n\r\n");
    connection.send(&Request(request.into_bytes()))?;
    let mut answer = String::new();
    connection.stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(format!("GET {path}: {}", &answer[..answer.floor_char_boundary(400)]).into()),
    }
}

/// Executions per second of `clients` clients, each of which sends its next request when the answer to its last
/// one is there, until `total` have been answered.
pub fn throughput(socket: &Path, request: &Request, clients: usize, total: usize) -> Fallible<f64> {
    let mut connections = (0..clients)
        .map(|_| Connection::open(socket))
        .collect::<Fallible<Vec<_>>>()?;
    let poller = Poller::new()?;
    for (index, connection) in connections.iter_mut().enumerate() {
        poller.watch(&connection.stream, index as u64)?;
        // The first round makes the connections known to the daemon: it is a cost of connecting, not of running.
        connection.exchange(&Request::get("/health"))?.expect(200)?;
    }
    let start = Instant::now();
    let mut sent = 0;
    for connection in connections.iter_mut().take(total) {
        connection.send(request)?;
        sent += 1;
    }
    let mut answered = 0;
    let mut ready = Vec::with_capacity(clients);
    while answered < total {
        poller.wait(&mut ready)?;
        for &index in &ready {
            let connection = &mut connections[index as usize];
            connection.read()?;
            let Some(extent) = Extent::of(&connection.buffer[..connection.filled])? else {
                continue;
            };
            Answer {
                status: extent.status,
                body: &connection.buffer[extent.body_start..extent.end],
            }
            .expect(200)?;
            answered += 1;
            if sent < total {
                connection.send(request)?;
                sent += 1;
            }
        }
    }
    Ok(total as f64 / start.elapsed().as_secs_f64())
}

/// `epoll`, level-triggered.
struct Poller(OwnedFd);

impl Poller {
    fn new() -> Fallible<Self> {
        // SAFETY: no pointers; the result is checked.
        let fd = nix::errno::Errno::result(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: just opened, owned by nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn watch(&self, stream: &UnixStream, key: u64) -> Fallible<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: key,
        };
        // SAFETY: both descriptors are open and `event` outlives the call.
        let done = unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                stream.as_raw_fd(),
                &mut event,
            )
        };
        nix::errno::Errno::result(done)?;
        Ok(())
    }

    /// The keys of what can be read, in `ready`.
    fn wait(&self, ready: &mut Vec<u64>) -> Fallible<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let patience = PATIENCE.as_millis() as i32;
        // SAFETY: `events` has room for as many as are asked for and outlives the call.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as i32,
                patience,
            )
        };
        let count = nix::errno::Errno::result(count)? as usize;
        if count == 0 {
            return Err(format!("no answer within {PATIENCE:?}").into());
        }
        ready.clear();
        ready.extend(events[..count].iter().map(|event| event.u64));
        Ok(())
    }
}
