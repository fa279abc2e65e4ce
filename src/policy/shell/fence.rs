//! The bounds of the loose reader. The parser behind it recurses and backtracks, so that short
//! texts can take all stack, all time (`((((…` doubles its work twice with each level) or all
//! memory: it is not waited for beyond a limit, and who reads for a daemon is a process of its own.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::loose::Reader;
use super::wire;
use super::{Reading, Setting, Unreadable};

/// Bounds for reading one script.
#[derive(Clone, Debug)]
pub struct Fence {
    /// The longest script, in bytes. What people and models write is far below; the stack and
    /// the time needed grow with it.
    pub max_bytes: usize,
    /// How long it is waited for. A script of a few KiB takes about a millisecond.
    pub time_limit: Duration,
    /// Who reads a script that is not of the simplest form.
    pub reader: Arc<dyn ReadScripts>,
}

/// Reads scripts within bounds of its own.
pub trait ReadScripts: fmt::Debug + Send + Sync {
    /// Has [`read_packed`](super::read_packed) read a script within `time_limit`, with a stack of [`READING_STACK_BYTES`], and
    /// answers what that does.
    ///
    /// # Errors
    /// Why nobody has read it to its end.
    fn read(&self, script: Vec<u8>, time_limit: Duration) -> Result<Vec<u8>, Unreadable>;
}

impl Default for Fence {
    fn default() -> Self {
        Self {
            max_bytes: 64 * 1024,
            time_limit: Duration::from_millis(50),
            reader: Arc::new(OnThreads),
        }
    }
}

/// Stack to read a script with, in bytes, of which only what is touched takes memory: for 400 levels of grammar, also in a
/// build without optimisation.
pub const READING_STACK_BYTES: usize = 64 << 20;

/// A thread for each script. One that takes too long goes on, with whatever memory it takes, so this is for a process that
/// reads a few scripts of people whom it trusts.
#[derive(Debug)]
struct OnThreads;

impl ReadScripts for OnThreads {
    fn read(&self, script: Vec<u8>, time_limit: Duration) -> Result<Vec<u8>, Unreadable> {
        let (tell, told) = sync_channel(1);
        let read = move || {
            // The parser logs what it reads, and that may be secret.
            let silent = tracing::subscriber::NoSubscriber::new();
            let reading = tracing::subscriber::with_default(silent, || wire::read_packed(&script));
            // Where nobody waits for it any more, it is for nobody.
            let _ = tell.send(reading);
        };
        let thread = thread::Builder::new().name("shell-reader".to_owned());
        match thread.stack_size(READING_STACK_BYTES).spawn(read) {
            Ok(_) => {}
            Err(_) => return Err(Unreadable::Busy),
        }
        told.recv_timeout(time_limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => Unreadable::TooSlow,
            RecvTimeoutError::Disconnected => Unreadable::Died,
        })
    }
}

pub(super) fn read(
    script: &str,
    setting: Setting<'_>,
    fence: &Fence,
) -> Result<Reading, Unreadable> {
    let variables = setting.variables.iter();
    let variables: usize = variables
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if script.len() + variables > fence.max_bytes {
        return Err(Unreadable::TooLong);
    }
    // A shell that reads what is not known here is asked about in any case.
    let input = setting.input;
    let setting = Setting {
        input: input.filter(|input| input.len() <= fence.max_bytes),
        ..setting
    };
    if let Some(reading) = Reader::new(setting).read_simple(script) {
        return Ok(reading);
    }
    let script = wire::pack(script, setting);
    wire::unpack(&fence.reader.read(script, fence.time_limit)?)
}
