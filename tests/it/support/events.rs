use serde_json::Value;

use super::{Connection, Daemon, Reply};

/// One server-sent event.
#[derive(Debug)]
pub struct Event {
    pub name: String,
    pub id: u64,
    pub data: Value,
}

/// An answer that is a stream of events.
pub struct Events {
    connection: Connection,
    /// What has arrived and is no whole event yet.
    text: String,
}

impl Events {
    /// Calls, and reads the head of the answer.
    #[track_caller]
    pub fn open(daemon: &Daemon, body: &Value) -> (Reply, Self) {
        Self::open_with(daemon, body, &[])
    }

    /// The same with more headers.
    #[track_caller]
    pub fn open_with(daemon: &Daemon, body: &Value, more: &[(&str, &str)]) -> (Reply, Self) {
        let mut connection = daemon.connect();
        let headers = [&[("Accept", "text/event-stream")], more].concat();
        connection.send("POST", "/execute", &headers, body.to_string().as_bytes());
        let head = connection.reply_head();
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        let text = String::new();
        (head, Self { connection, text })
    }

    /// Reads the head of `GET path`.
    #[track_caller]
    pub fn get(daemon: &Daemon, path: &str) -> Self {
        let mut connection = daemon.connect();
        connection.send("GET", path, &[], b"");
        assert_eq!(connection.reply_head().status, 200);
        let text = String::new();
        Self { connection, text }
    }

    /// Waits for a comment, with which an idle stream shows that it lives.
    #[track_caller]
    pub fn comment(&mut self) {
        assert_eq!(self.text, "", "there is an event before it");
        let chunk = self.connection.chunk().expect("more");
        assert!(
            chunk.starts_with(b":"),
            "{}",
            String::from_utf8_lossy(&chunk)
        );
    }

    /// All that is left.
    pub fn rest(mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let end = loop {
            match self.text.find("\n\n") {
                Some(end) => break end,
                None => {
                    let chunk = self.connection.chunk()?;
                    self.text
                        .push_str(std::str::from_utf8(&chunk).expect("events are UTF-8"));
                }
            }
        };
        let event: String = self.text.drain(..end + 2).collect();
        let (mut name, mut id, mut data) = (String::new(), 0, String::new());
        for line in event.lines().filter(|line| !line.is_empty()) {
            match line.split_once(": ") {
                Some(("event", value)) => value.clone_into(&mut name),
                Some(("id", value)) => id = value.parse().expect("ids are numbers"),
                Some(("data", value)) => data.push_str(value),
                _ if line.starts_with(':') => return self.next(),
                _ => panic!("no field of an event: {line:?}"),
            }
        }
        let data = serde_json::from_str(&data).expect("data is JSON");
        Some(Event { name, id, data })
    }
}
