//! Bytes into text: characters split over writes, no characters at all, nothing at all.

use serde_json::json;

use crate::support::{Daemon, Fifo, Mode, bash_call};

#[test]
fn bytes_become_text_over_the_whole_stream() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "max_output_bytes = 10");
        for (command, expected) in [
            // U+20AC is E2 82 AC; the pause has the two parts read apart.
            (
                r"printf 'a\xe2\x82'; sleep 0.1; printf '\xacb'",
                "[stdout]\na€b\n\n",
            ),
            (
                r"printf '\xe2'; sleep 0.1; printf '\x82'; sleep 0.1; printf '\xac'",
                "[stdout]\n€\n\n",
            ),
            (r"printf 'a\xffb'", "[stdout]\na\u{fffd}b\n\n"),
            // One for each maximal part of a character.
            (
                r"printf '\xe2\x82|\xf0\x9f\x98|\x80'",
                "[stdout]\n\u{fffd}|\u{fffd}|\u{fffd}\n\n",
            ),
            (r"printf 'a\0b'", "[stdout]\na\0b\n\n"),
            (r"printf '\e[31m\t\r'", "[stdout]\n\u{1b}[31m\t\r\n\n"),
            ("true", ""),
            ("echo", "[stdout]\n\n\n"),
            ("printf x", "[stdout]\nx\n\n"),
            (r"printf 'x\n\n'", "[stdout]\nx\n\n\n"),
            ("echo >&2", "[stderr]\n\n\n"),
            // A cut in the middle of a character: up to three bytes less.
            (
                "printf '%s' 12345678€",
                "[stdout]\n12345678\n...(truncated)\n\n",
            ),
            ("printf '%s' 1234567€", "[stdout]\n1234567€\n\n"),
            (
                "printf '%s' 1234567😀",
                "[stdout]\n1234567\n...(truncated)\n\n",
            ),
            (
                "printf '%s' 1234567€€",
                "[stdout]\n1234567€\n...(truncated)\n\n",
            ),
        ] {
            let reply = daemon.bash(command);
            assert_eq!(reply.status, 200, "{mode:?} {command}");
            assert_eq!(
                reply.content(),
                format!("{expected}[exit_code]\n0"),
                "{mode:?} {command}"
            );
            assert_eq!(
                reply.json()["truncated"],
                expected.contains("truncated"),
                "{command}"
            );
        }
        // Whatever they are as text, the raw bytes are what was written.
        let body = daemon.bash(r"printf 'a\0b\xff\xe2\x82'").json();
        let id = body["execution_id"].as_str().expect("an id");
        assert_eq!(daemon.output(id, "stdout"), b"a\0b\xff\xe2\x82", "{mode:?}");
    }
}

/// The `stdout` events of a stream: text and offset.
fn told(stream: &str) -> Vec<(String, u64)> {
    let events = stream
        .split("\n\n")
        .filter(|event| event.contains("event: stdout"));
    events
        .map(|event| {
            let data = event.lines().find_map(|line| line.strip_prefix("data: "));
            let data: serde_json::Value = serde_json::from_str(data.expect("data")).expect("JSON");
            let text = data["text"].as_str().expect("text").to_owned();
            (text, data["offset"].as_u64().expect("an offset"))
        })
        .collect()
}

#[test]
fn a_stream_holds_an_incomplete_character_back() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let [first, second] = ["first", "second"].map(|name| Fifo::new(daemon.dir().join(name)));
        let command = format!(
            r"printf 'a\xe2\x82'; read _ <{}; printf '\xacb'; read _ <{}; printf '\xe2'",
            first.path().display(),
            second.path().display()
        );
        let mut connection = daemon.connect();
        let call = bash_call(&command, &json!({})).to_string();
        let accept = [("Accept", "text/event-stream")];
        connection.send("POST", "/execute", &accept, call.as_bytes());
        assert_eq!(connection.reply_head().status, 200);
        let mut stream = String::new();
        let mut listen = |until: &str| {
            while !stream.contains(until)
                && let Some(chunk) = connection.chunk()
            {
                stream.push_str(&String::from_utf8(chunk).expect("text"));
            }
        };
        listen(r#""text":"a""#);
        first.reached().say("on");
        listen(r#""text":"€b""#);
        second.reached().say("on");
        listen("no such words");
        let events = told(&stream);
        let text: String = events.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(text, "a€b\u{fffd}", "{mode:?}: {events:?}");
        assert_eq!(events[0], ("a".to_owned(), 0), "{mode:?}");
        let euro = events.iter().find(|(text, _)| text.starts_with('€'));
        assert_eq!(euro.expect("whole").1, 1, "{mode:?}: {events:?}");
        let last = events.last().expect("events");
        assert_eq!(last, &("\u{fffd}".to_owned(), 5), "{mode:?}");
    }
}
