use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Longer than the daemon may be asked to hold an answer back: there so that one that never answers
/// fails its test instead of hanging it.
const LONGEST_ANSWER: Duration = Duration::from_secs(120);

/// One connection to the daemon, speaking HTTP/1.1 by hand: what a test wants to send is often
/// what no client would.
pub struct Connection {
    stream: BufReader<UnixStream>,
    /// Method and target of what was sent and has not been answered.
    unanswered: VecDeque<(String, String)>,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Connection {
    pub fn open(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the daemon listens");
        stream
            .set_read_timeout(Some(LONGEST_ANSWER))
            .expect("a connected socket");
        Self {
            stream: BufReader::new(stream),
            unanswered: VecDeque::new(),
        }
    }

    /// Sends a request and reads its answer.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        self.send(method, path, headers, body);
        self.reply()
    }

    /// Sends a request.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        self.expect_answer(method, path);
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: shelly\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.write(head.as_bytes());
        self.write(body);
    }

    /// Says which request the bytes are that are written by hand, so that its answer is checked.
    pub fn expect_answer(&mut self, method: &str, path: &str) {
        self.unanswered
            .push_back((method.to_owned(), path.to_owned()));
    }

    /// Sends bytes as they are. A daemon that has answered early may have stopped reading.
    pub fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// Reads one answer, and holds it against the API's document.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        let request = self.unanswered.front().cloned();
        let (method, target) = request.unzip();
        let mut reply = self.reply_head();
        if method.as_deref() == Some("HEAD") {
            return reply;
        }
        let length = reply
            .header("content-length")
            .map(|text| text.parse().expect("a length"));
        match length {
            Some(length) => {
                reply.body = vec![0; length];
                self.stream
                    .read_exact(&mut reply.body)
                    .expect("the whole body");
            }
            None if reply.header("transfer-encoding") == Some("chunked") => {
                while let Some(chunk) = self.chunk() {
                    reply.body.extend(chunk);
                }
            }
            None => {}
        }
        if let (Some(method), Some(target)) = (method, target) {
            super::openapi::check(&method, &target, &reply);
        }
        reply
    }

    /// Reads status line and headers of an answer whose body is read piece by piece.
    #[track_caller]
    pub fn reply_head(&mut self) -> Reply {
        let line = self.line();
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status line: {line:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let reply = Reply {
            status,
            headers,
            body: Vec::new(),
        };
        if reply.status == 100 {
            return self.reply_head();
        }
        self.unanswered.pop_front();
        reply
    }

    /// The next chunk of a chunked body; `None` after the last.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.line();
        let length =
            usize::from_str_radix(line.trim(), 16).unwrap_or_else(|_| panic!("no chunk: {line:?}"));
        let mut chunk = vec![0; length];
        self.stream.read_exact(&mut chunk).expect("the whole chunk");
        self.line();
        (length > 0).then_some(chunk)
    }

    /// Says that nothing more will be sent, and goes on reading.
    pub fn half_close(&self) {
        self.stream
            .get_ref()
            .shutdown(std::net::Shutdown::Write)
            .expect("a connected socket");
    }

    /// Whether the daemon has closed the connection, which it must have done or do.
    pub fn is_closed(&mut self) -> bool {
        // A reset is an end too: something was sent that nobody read.
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }

    /// All that is still sent until the daemon closes the connection.
    pub fn drain(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line");
        line.trim_end_matches(['\r', '\n']).to_owned()
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The text for the model.
    #[track_caller]
    pub fn content(&self) -> String {
        self.json()["content"].as_str().expect("content").to_owned()
    }

    /// Standard output as the text for the model has it.
    #[track_caller]
    pub fn stdout(&self) -> String {
        let content = self.content();
        let Some(text) = content.strip_prefix("[stdout]\n") else {
            return String::new();
        };
        let end = text.rfind("\n\n[stderr]\n").or_else(|| text.rfind("\n\n["));
        text[..end.expect("a section after it")].to_owned()
    }
}
