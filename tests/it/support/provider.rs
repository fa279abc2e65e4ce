use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use serde_json::{Value, json};

/// A model provider that speaks the Anthropic Messages API over a local port: it plays the turns
/// it is given, and refuses, as the real one does, what is not a valid request.
pub struct Provider {
    address: SocketAddr,
    thread: JoinHandle<Vec<Value>>,
}

impl Provider {
    /// Answers one request after the other with the next turn's content.
    pub fn start(turns: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let thread = std::thread::spawn(move || play(&listener, turns));
        Self { address, thread }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bodies of all requests there were, once the client is done.
    pub fn requests(self) -> Vec<Value> {
        // Whatever it still waits for will not come: a connection without a request says so.
        drop(TcpStream::connect(self.address));
        self.thread.join().expect("the provider")
    }
}

fn play(listener: &TcpListener, turns: Vec<Value>) -> Vec<Value> {
    let mut requests = Vec::new();
    let mut turns = turns.into_iter();
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream.expect("a connection"));
        let Some((head, body)) = read(&mut stream) else {
            break;
        };
        let (status, answer) = match (check(&head, &body), turns.next()) {
            (Ok(()), Some(content)) => ("200 OK", message(&body, content)),
            (Err(text), _) => ("400 Bad Request", problem(&text)),
            (Ok(()), None) => ("400 Bad Request", problem("the conversation is over")),
        };
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            answer.len()
        );
        let stream = stream.get_mut();
        stream
            .write_all((head + &answer).as_bytes())
            .expect("the client reads");
        requests.push(body);
    }
    requests
}

/// Request line and headers in lower case, and the body. `None` when the client says nothing.
fn read(stream: &mut BufReader<TcpStream>) -> Option<(String, Value)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).expect("text") == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("the whole body");
    Some((head, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

fn message(request: &Value, content: Value) -> Value {
    let calls = content.as_array().expect("blocks").iter();
    let calls = calls.filter(|block| block["type"] == "tool_use").count();
    json!({
        "id": "msg_01", "type": "message", "role": "assistant", "model": request["model"],
        "content": content,
        "stop_reason": if calls > 0 { "tool_use" } else { "end_turn" }, "stop_sequence": null,
        "usage": {"input_tokens": 100, "output_tokens": 10},
    })
}

fn problem(text: &str) -> Value {
    json!({"type": "error", "error": {"type": "invalid_request_error", "message": text}})
}

/// What the API demands of a request with tools.
fn check(head: &str, body: &Value) -> Result<(), String> {
    let demand = |holds: bool, text: &str| {
        if holds {
            Ok(())
        } else {
            Err(format!("{text}: {body}"))
        }
    };
    for part in [
        "post /v1/messages http/1.1\r\n",
        "\r\nx-api-key: key\r\n",
        "\r\nanthropic-version: 2023-06-01\r\n",
        "\r\ncontent-type: application/json\r\n",
    ] {
        demand(head.contains(part), part)?;
    }
    demand(
        body["model"].is_string() && body["max_tokens"].is_u64(),
        "model and max_tokens",
    )?;
    for tool in body["tools"].as_array().into_iter().flatten() {
        let members: Vec<&String> = tool
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
            .collect();
        demand(
            members == ["description", "input_schema", "name"],
            "tools: name, description, input_schema",
        )?;
        demand(
            tool["input_schema"]["type"] == "object",
            "tools: input_schema.type",
        )?;
    }
    let messages = body["messages"].as_array().ok_or("messages: a list")?;
    let mut open: Vec<&Value> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        demand(message["role"] == role, "messages: roles alternate")?;
        let blocks = message["content"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        demand(
            !blocks.is_empty() || message["content"].is_string(),
            "messages: content",
        )?;
        let of = |kind: &str, id: &str| {
            blocks
                .iter()
                .filter(|b| b["type"] == kind)
                .map(|b| b[id].clone())
                .collect::<Vec<_>>()
        };
        let answered = of("tool_result", "tool_use_id");
        demand(
            open.iter().copied().eq(answered.iter()),
            "each `tool_use` must have a `tool_result` right after it",
        )?;
        open = blocks
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|block| &block["id"])
            .collect();
    }
    demand(
        open.is_empty() && messages.len() % 2 == 1,
        "the last message is the user's",
    )
}
