//! Takes what is logged to where it goes, on a thread of its own: a journal that stands still, or a pipe that
//! nobody reads, holds up nobody. What then does not fit into the queue is dropped, counted and told of.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use tracing::field::{Field, Value, Visit, debug};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::Context;

use crate::domain::timestamp;

/// How many records may wait: what a busy daemon logs in about a second, some 2 KiB each.
const WAITING: usize = 2048;

/// How long the thread sleeps once it has caught up, so that not each of many records wakes it.
const LINGER: Duration = Duration::from_millis(10);

/// How long the end waits for what is still to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

thread_local! {
    /// When what is being written was logged, if that was not just now.
    static AT: Cell<Option<SystemTime>> = const { Cell::new(None) };
    /// Whether this is the thread that carries: what it logs itself waits for nobody.
    static CARRIES: Cell<bool> = const { Cell::new(false) };
}

/// The time at which something was logged, whenever it is written.
pub(super) struct LoggedAt;

impl FormatTime for LoggedAt {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let at = AT.get().unwrap_or_else(SystemTime::now);
        writer.write_str(&timestamp(at))
    }
}

/// Where what is logged goes.
pub(super) type Sink = Arc<dyn Subscriber + Send + Sync>;

/// Hands what is logged to the thread, as soon as there is one.
#[derive(Clone)]
pub(in crate::daemon) struct Courier {
    shared: Arc<Shared>,
    /// Called by itself: as a `Dispatch` it would have a say in what is logged.
    sink: Sink,
    message: Message,
}

/// What the message of a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// What was logged as such: the fields are shown beside it.
    AsLogged,
    /// The fields in lower case as well, and last the error: of a record people see only that. Those in upper case
    /// are there to be searched for.
    Whole,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Something waits, or everything is written.
    changed: Condvar,
}

struct Queue {
    way: Way,
    waiting: VecDeque<Record>,
    /// Since the last that found room.
    dropped: u64,
    /// Whether the thread is at it.
    is_writing: bool,
}

/// How what is logged comes to where it goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Whoever logs writes it.
    Direct,
    /// The thread does.
    Carried,
    /// Not at all: what was there before could not be written in time, and this is the end.
    Closed,
}

impl Courier {
    /// Whoever logs writes to `sink`, until [`Self::carry`].
    pub(super) fn new(sink: Sink, message: Message) -> Self {
        let queue = Queue {
            way: Way::Direct,
            waiting: VecDeque::new(),
            dropped: 0,
            is_writing: false,
        };
        let shared = Shared {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
            sink,
            message,
        }
    }

    /// Has a thread write what is logged from now on.
    ///
    /// # Errors
    /// When there can be no thread; all stays as it is.
    pub(in crate::daemon) fn carry(&self) -> io::Result<()> {
        let courier = self.clone();
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || courier.run())?;
        self.shared.queue.lock().way = Way::Carried;
        Ok(())
    }

    fn run(&self) {
        CARRIES.set(true);
        loop {
            let record = self.shared.next();
            if record.missed > 0 {
                tracing::warn!(
                    records = record.missed,
                    "records of the log are missing here: whoever reads it did not keep up"
                );
            }
            self.send(record);
            if self.shared.has_written() {
                thread::sleep(LINGER);
            }
        }
    }

    fn send(&self, mut record: Record) {
        if self.message == Message::Whole {
            record.complete_message();
        }
        record.send(&self.sink);
    }

    /// Waits until all is written, though not for long, and leaves what comes after that to whoever logs it. Where it
    /// cannot be written nothing more is.
    pub(in crate::daemon) fn end(&self) {
        let deadline = Instant::now() + LAST_WORDS;
        let mut queue = self.shared.queue.lock();
        while queue.way == Way::Carried && (queue.is_writing || !queue.waiting.is_empty()) {
            if self
                .shared
                .changed
                .wait_until(&mut queue, deadline)
                .timed_out()
            {
                queue.way = Way::Closed;
                return;
            }
        }
        queue.way = Way::Direct;
    }
}

impl<S: Subscriber> Layer<S> for Courier {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let way = self.shared.queue.lock().way;
        match way {
            Way::Carried if !CARRIES.get() => self.shared.put(Record::of(event)),
            Way::Direct | Way::Carried => match self.message {
                Message::AsLogged => self.sink.event(event),
                Message::Whole => self.send(Record::of(event)),
            },
            Way::Closed => {}
        }
    }
}

impl Shared {
    fn put(&self, mut record: Record) {
        let mut queue = self.queue.lock();
        if queue.waiting.len() < WAITING {
            record.missed = std::mem::take(&mut queue.dropped);
            queue.waiting.push_back(record);
            self.changed.notify_all();
        } else {
            queue.dropped += 1;
        }
    }

    /// The next to be written.
    fn next(&self) -> Record {
        let mut queue = self.queue.lock();
        loop {
            if let Some(record) = queue.waiting.pop_front() {
                queue.is_writing = true;
                return record;
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Says so to who waits for the end. Whether that was all there was.
    fn has_written(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.is_writing = false;
        self.changed.notify_all();
        queue.waiting.is_empty()
    }
}

/// What was logged, in two pieces of memory: they are given back on another thread.
struct Record {
    at: SystemTime,
    /// How many before it found no room.
    missed: u64,
    metadata: &'static Metadata<'static>,
    /// All that is text in it.
    text: String,
    /// By field.
    values: Vec<Option<Logged>>,
}

/// A value that was logged.
enum Logged {
    I64(i64),
    U64(u64),
    F64(f64),
    Bool(bool),
    Text(Range<usize>),
    /// As its `Debug` shows it, or its `Display`.
    Shown(Range<usize>),
}

/// The same with its text at hand.
enum Told<'a> {
    I64(i64),
    U64(u64),
    F64(f64),
    Bool(bool),
    Text(&'a str),
    Shown(tracing::field::DebugValue<Shown<'a>>),
}

/// Shows itself as something else did.
struct Shown<'a>(&'a str);

impl Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Record {
    fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut record = Self {
            at: SystemTime::now(),
            missed: 0,
            metadata,
            text: String::new(),
            values: metadata.fields().iter().map(|_| None).collect(),
        };
        event.record(&mut record);
        record
    }

    /// Logs it again, to there.
    fn send(&self, sink: &Sink) {
        let told: Vec<Option<Told<'_>>> = self
            .values
            .iter()
            .map(|value| value.as_ref().map(|value| value.told(&self.text)))
            .collect();
        let values: Vec<Option<&dyn Value>> = told
            .iter()
            .map(|told| told.as_ref().map(Told::value))
            .collect();
        let values = self.metadata.fields().value_set_all(&values);
        AT.set(Some(self.at));
        sink.event(&Event::new(self.metadata, &values));
        AT.set(None);
    }

    /// Has the message say what the fields in lower case do.
    fn complete_message(&mut self) {
        let (mut message, mut details, mut cause) = (None, Vec::new(), None);
        for (at, field) in self.metadata.fields().iter().enumerate() {
            let Some(value) = self.values.get(at).and_then(Option::as_ref) else {
                continue;
            };
            match field.name() {
                "message" => message = Some((at, value)),
                "error" => cause = Some(value.shown(&self.text)),
                // Those with dots are of the `log` crate, and about the source.
                name if !name.contains('.') && !name.contains(char::is_uppercase) => {
                    details.push(format!("{name}={}", value.shown(&self.text)));
                }
                _ => {}
            }
        }
        let Some((at, value)) = message else {
            return;
        };
        if details.is_empty() && cause.is_none() {
            return;
        }
        let mut text = value.shown(&self.text);
        if !details.is_empty() {
            text.push_str(&format!(" ({})", details.join(", ")));
        }
        if let Some(cause) = cause {
            text.push_str(&format!(": {cause}"));
        }
        let text = self.put_text(format_args!("{text}"));
        if let Some(message) = self.values.get_mut(at) {
            *message = Some(Logged::Shown(text));
        }
    }

    fn put(&mut self, field: &Field, value: Logged) {
        if let Some(place) = self.values.get_mut(field.index()) {
            *place = Some(value);
        }
    }

    fn put_text(&mut self, text: fmt::Arguments<'_>) -> Range<usize> {
        let begin = self.text.len();
        // What shows itself wrongly is shown as far as it got.
        let _ = fmt::Write::write_fmt(&mut self.text, text);
        begin..self.text.len()
    }
}

impl Visit for Record {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Logged::I64(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Logged::U64(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Logged::F64(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Logged::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let text = self.put_text(format_args!("{value}"));
        self.put(field, Logged::Text(text));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = self.put_text(format_args!("{value:?}"));
        self.put(field, Logged::Shown(text));
    }
}

impl Logged {
    fn shown(&self, text: &str) -> String {
        match self {
            Self::I64(value) => value.to_string(),
            Self::U64(value) => value.to_string(),
            Self::F64(value) => value.to_string(),
            Self::Bool(value) => value.to_string(),
            Self::Text(range) | Self::Shown(range) => text[range.clone()].to_owned(),
        }
    }

    fn told<'a>(&self, text: &'a str) -> Told<'a> {
        match self {
            Self::I64(value) => Told::I64(*value),
            Self::U64(value) => Told::U64(*value),
            Self::F64(value) => Told::F64(*value),
            Self::Bool(value) => Told::Bool(*value),
            Self::Text(range) => Told::Text(&text[range.clone()]),
            Self::Shown(range) => Told::Shown(debug(Shown(&text[range.clone()]))),
        }
    }
}

impl Told<'_> {
    fn value(&self) -> &dyn Value {
        match self {
            Self::I64(value) => value,
            Self::U64(value) => value,
            Self::F64(value) => value,
            Self::Bool(value) => value,
            Self::Text(value) => value,
            Self::Shown(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::subscriber::with_default;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::{fmt, registry};

    use super::*;

    /// What is written, line by line.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log_all_kinds() {
        let (error, text) = (io::Error::other("why"), "two\nlines");
        tracing::warn!(number = -1, size = 2_u64, share = 0.5, is = true, text, %error, ?error, none = tracing::field::Empty, "it {}", "is");
        tracing::info!("nothing besides");
        tracing::error!(target: "elsewhere", EXECUTION_ID = %"x");
    }

    #[test]
    fn what_is_carried_reads_as_what_is_written_at_once() {
        let written = [Lines::default(), Lines::default()];
        for (lines, is_carried) in written.iter().zip([false, true]) {
            let lines = lines.clone();
            let json = fmt::layer().json().flatten_event(true).without_time();
            let sink = registry().with(json.with_writer(move || lines.clone()));
            let courier = Courier::new(Arc::new(sink), Message::AsLogged);
            if is_carried {
                courier.carry().expect("a thread");
            }
            with_default(registry().with(courier.clone()), log_all_kinds);
            courier.end();
        }
        let [direct, carried] =
            written.map(|lines| String::from_utf8(lines.0.lock().clone()).expect("text"));
        assert_eq!(direct.lines().count(), 3, "{direct}");
        assert_eq!(carried, direct);
    }

    #[test]
    fn a_message_may_say_all_that_people_are_to_know() {
        let lines = Lines::default();
        let writer = lines.clone();
        let json = fmt::layer().json().flatten_event(true).without_time();
        let sink = registry().with(json.with_writer(move || writer.clone()));
        let courier = Courier::new(Arc::new(sink), Message::Whole);
        with_default(registry().with(courier), || {
            let error = io::Error::other("why");
            tracing::warn!(EXECUTION_ID = "x", pid = 3, %error, path = %"/a b", "cannot");
            tracing::warn!(EXECUTION_ID = "x", "done");
        });
        let written = String::from_utf8(lines.0.lock().clone()).expect("text");
        let messages: Vec<String> = written
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .map(|record: serde_json::Value| record["message"].as_str().expect("text").to_owned())
            .collect();
        assert_eq!(messages, ["cannot (pid=3, path=/a b): why", "done"]);
        assert!(written.contains(r#""error":"why""#), "{written}");
    }

    #[test]
    fn what_does_not_fit_is_counted_with_the_next_that_does() {
        let courier = Courier::new(Arc::new(registry()), Message::AsLogged);
        courier.shared.queue.lock().way = Way::Carried;
        with_default(registry().with(courier.clone()), || {
            (0..WAITING + 10).for_each(|number| tracing::info!(number));
        });
        let mut records: Vec<Record> = (0..WAITING).map(|_| courier.shared.next()).collect();
        with_default(registry().with(courier.clone()), || tracing::info!("later"));
        records.push(courier.shared.next());
        let missed: Vec<u64> = records.iter().map(|record| record.missed).collect();
        assert_eq!((missed[WAITING], missed.iter().sum::<u64>()), (10, 10));
        assert!(courier.shared.has_written());
        courier.end();
    }
}
