//! Who reads scripts for the policy: processes of this program's own. A parser that takes a hostile text's bait takes no
//! more than one of them: it has bounds, and is killed at the time limit.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use parking_lot::{Condvar, Mutex};

use crate::policy::{READING_STACK_BYTES, ReadScripts, Unreadable, read_packed};

/// What tells the program to do nothing but [`read_scripts`].
pub const READ_SCRIPTS: &str = "--read-scripts";

/// How many there are at once: enough that a script which takes all its time keeps no other waiting. More would only
/// share the processors.
const MAX_PROCESSES: usize = 4;

/// How many scripts may wait for one of them. The last of so many comes to its turn within some seconds if each takes 50 ms,
/// and in a tenth of one if they are such as people write.
const MAX_WAITING: usize = 256;

/// How long one may take to start. It takes some milliseconds.
const START_LIMIT: Duration = Duration::from_secs(10);

/// How long one that has nothing to read is kept: for the next call of an agent that thinks in between.
const REST: Duration = Duration::from_secs(30);

/// What one may take in memory of its own besides its stack, in bytes: the longest script that is read takes a tenth.
const MEMORY_BYTES: u64 = 192 << 20;

/// The longest message, in bytes: a script of 64 KiB with as much input and as many variables is less than one MiB in
/// JSON, and what is found in one is bounded to half of that.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Processes that read scripts, started as they are needed.
#[derive(Debug)]
pub(super) struct Readers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    program: PathBuf,
    queue: Mutex<Queue>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Errand>,
    keepers: usize,
    /// How many of them have nothing to do, or have not yet taken what waits.
    idle: usize,
}

/// A script to be read, and who waits for it.
#[derive(Debug)]
struct Errand {
    script: Vec<u8>,
    time_limit: Duration,
    tell: SyncSender<Result<Vec<u8>, Unreadable>>,
}

impl Readers {
    /// Those of a program that calls [`read_scripts`] where it is told to [`READ_SCRIPTS`].
    pub(super) fn of(program: PathBuf) -> Self {
        Self {
            shared: Arc::new(Shared {
                program,
                queue: Mutex::default(),
                called: Condvar::new(),
            }),
        }
    }
}

impl ReadScripts for Readers {
    fn read(&self, script: Vec<u8>, time_limit: Duration) -> Result<Vec<u8>, Unreadable> {
        let (tell, told) = sync_channel(1);
        let errand = Errand {
            script,
            time_limit,
            tell,
        };
        self.shared.take(errand)?;
        told.recv().unwrap_or(Err(Unreadable::Died))
    }
}

impl Shared {
    /// Gives an errand to who rests, or to a new keeper, or has it wait for one.
    fn take(self: &Arc<Self>, errand: Errand) -> Result<(), Unreadable> {
        let mut queue = self.queue.lock();
        if queue.waiting.len() >= MAX_WAITING {
            return Err(Unreadable::Busy);
        }
        queue.waiting.push_back(errand);
        if queue.waiting.len() <= queue.idle || queue.keepers >= MAX_PROCESSES {
            self.called.notify_one();
            return Ok(());
        }
        let this = Arc::clone(self);
        let keeper = thread::Builder::new().name("reader".to_owned());
        match keeper.spawn(move || this.keep()) {
            Ok(_) => {
                queue.keepers += 1;
                queue.idle += 1;
            }
            Err(error) if queue.keepers == 0 => {
                queue.waiting.pop_back();
                tracing::warn!(%error, "there is no thread to have scripts read; who calls is asked");
                return Err(Unreadable::Busy);
            }
            // One of the others comes to it.
            Err(_) => {}
        }
        Ok(())
    }

    /// What a thread does that keeps one process. Each has one of its own, because a process is the child of the thread that
    /// has started it (`/proc/PID/task/TID/children`): those of the main thread are taken for what commands have left
    /// behind, and are killed.
    fn keep(&self) {
        let mut process = None;
        while let Some(errand) = self.next() {
            let Errand {
                script,
                time_limit,
                tell,
            } = errand;
            let read = self.read(&mut process, &script, time_limit);
            // Before who has asked can come with the next.
            self.queue.lock().idle += 1;
            // Who has asked may be gone.
            let _ = tell.send(read);
        }
    }

    /// What is to be read next; none after some time of rest.
    fn next(&self) -> Option<Errand> {
        let mut queue = self.queue.lock();
        let end = Instant::now() + REST;
        loop {
            if let Some(errand) = queue.waiting.pop_front() {
                queue.idle -= 1;
                return Some(errand);
            }
            let waited = self.called.wait_until(&mut queue, end);
            if waited.timed_out() && queue.waiting.is_empty() {
                queue.idle -= 1;
                queue.keepers -= 1;
                return None;
            }
        }
    }

    /// Has a process read a script, the one that has rested if there is one. One that fails is used no more.
    fn read(
        &self,
        kept: &mut Option<Process>,
        script: &[u8],
        time_limit: Duration,
    ) -> Result<Vec<u8>, Unreadable> {
        if let Some(process) = kept.take() {
            match process.read(script, time_limit) {
                // While it rested anybody may have killed it.
                Err(Unreadable::Died) => {}
                Err(unreadable) => return Err(unreadable),
                Ok(read) => {
                    *kept = Some(process);
                    return Ok(read);
                }
            }
        }
        let process = Process::start(&self.program).map_err(|error| {
            tracing::warn!(%error, "cannot start a process that reads scripts; who calls is asked");
            Unreadable::Busy
        })?;
        let read = process.read(script, time_limit)?;
        *kept = Some(process);
        Ok(read)
    }
}

/// A process that reads one script after another.
#[derive(Debug)]
struct Process {
    child: Child,
    stream: UnixStream,
}

impl Process {
    fn start(program: &Path) -> io::Result<Self> {
        let (stream, theirs) = UnixStream::pair()?;
        let child = Command::new(program)
            .arg0("shelly-executord")
            .arg(READ_SCRIPTS)
            .env_clear()
            .current_dir("/")
            // What a terminal sends to the daemon is not meant for it.
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let process = Self { child, stream };
        // Its time is that of the script, not that of its start.
        receive(&process.stream, Some(Instant::now() + START_LIMIT))?;
        Ok(process)
    }

    fn read(&self, script: &[u8], time_limit: Duration) -> Result<Vec<u8>, Unreadable> {
        let end = Instant::now() + time_limit;
        let read =
            send(&self.stream, script, Some(end)).and_then(|()| receive(&self.stream, Some(end)));
        read.map_err(|error| {
            let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
            match kinds.contains(&error.kind()) {
                true => Unreadable::TooSlow,
                false => Unreadable::Died,
            }
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a message: its length as four bytes, the lowest first, and its bytes.
fn send(mut stream: &UnixStream, message: &[u8], end: Option<Instant>) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    let mut rest = &[&length.to_le_bytes(), message].concat()[..];
    while !rest.is_empty() {
        stream.set_write_timeout(left(end)?)?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => rest = &rest[sent..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives a message as [`send`] sends it.
fn receive(stream: &UnixStream, end: Option<Instant>) -> io::Result<Vec<u8>> {
    let length = receive_bytes(stream, 4, end)?;
    let length = length
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    match length {
        0..=MAX_MESSAGE_BYTES => receive_bytes(stream, length, end),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn receive_bytes(
    mut stream: &UnixStream,
    count: usize,
    end: Option<Instant>,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut received = 0;
    while received < count {
        stream.set_read_timeout(left(end)?)?;
        match stream.read(&mut bytes[received..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => received += more,
            // Where a time limit is set even being stopped and going on interrupts (signal(7)).
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// How long there is until `end`; an error where that is over.
fn left(end: Option<Instant>) -> io::Result<Option<Duration>> {
    let Some(end) = end else {
        return Ok(None);
    };
    let left = end.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(Some(left)),
    }
}

/// Reads the scripts that come on standard input, a socket, and answers there what was found, until whoever sends them is
/// gone. For a process that does nothing else: it ends where one takes more memory or stack than it may.
///
/// # Errors
/// When it cannot be kept within bounds, or standard input is no socket.
pub fn read_scripts() -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    prctl::set_name(c"script-reader")?;
    let (_, most) = getrlimit(Resource::RLIMIT_DATA)?;
    let bytes = most.min(MEMORY_BYTES + READING_STACK_BYTES as u64);
    setrlimit(Resource::RLIMIT_DATA, bytes, bytes)?;
    // What it reads may be secret.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    // Where memory is short it is the first to go, and nothing is lost with it.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let serving = thread::Builder::new()
        .stack_size(READING_STACK_BYTES)
        .spawn(move || serve(&stream))?;
    serving
        .join()
        .map_err(|_| io::Error::other("the parser has failed"))?
}

fn serve(stream: &UnixStream) -> io::Result<()> {
    send(stream, &[], None)?;
    loop {
        match receive(stream, None) {
            Ok(script) => send(stream, &read_packed(&script), None)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// A program that says that it has started, and then does as told.
    fn program(name: &str, does: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("shelly-{name}-{}", std::process::id()));
        let script = format!("#!/bin/sh\nprintf '\\0\\0\\0\\0' >&0\n{does}\n");
        fs::write(&path, script).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("executable");
        path
    }

    #[test]
    fn a_reader_that_fails_costs_an_answer_and_nothing_else() {
        for (name, does, time_limit, expected) in [
            ("ends", "head -c 5 > /dev/null", SOON, Unreadable::Died),
            ("kills", "kill -SEGV $$", SOON, Unreadable::Died),
            (
                "stops",
                "kill -STOP $$",
                Duration::from_millis(50),
                Unreadable::TooSlow,
            ),
            (
                "floods",
                "head -c 300004 > /dev/null; printf '\\377\\377\\377\\377' >&0; exec sleep 1000",
                SOON,
                Unreadable::Died,
            ),
            (
                "says-half",
                "printf '\\4\\0\\0\\0ab' >&0",
                SOON,
                Unreadable::Died,
            ),
        ] {
            let path = program(name, does);
            let readers = Readers::of(path.clone());
            for _ in 0..3 {
                let read = readers.read(vec![b'x'; 300_000], time_limit);
                assert_eq!(read, Err(expected), "{name}");
            }
            fs::remove_file(path).expect("removed");
        }
    }

    #[test]
    fn where_none_can_be_started_nobody_reads() {
        for program in ["/nowhere", "/bin/true"] {
            let readers = Readers::of(PathBuf::from(program));
            let read = readers.read(vec![b'x'], SOON);
            assert_eq!(read, Err(Unreadable::Busy), "{program}");
        }
    }

    #[test]
    fn there_are_only_so_many_and_only_so_many_wait_for_them() {
        let open = std::env::temp_dir().join(format!("shelly-open-{}", std::process::id()));
        let does = format!("until [ -e {} ]; do sleep 0.01; done", open.display());
        let path = program("waits", &does);
        let readers = Readers::of(path.clone());
        let read = || readers.read(vec![b'x'], SOON);
        let wait_for = |waiting: usize, keepers: usize| {
            let is_there = |queue: &Queue| {
                (queue.waiting.len(), queue.keepers, queue.idle) == (waiting, keepers, 0)
            };
            while !is_there(&readers.shared.queue.lock()) {
                thread::sleep(Duration::from_millis(1));
            }
        };
        thread::scope(|scope| {
            let mut all = Vec::new();
            for keepers in 1..=MAX_PROCESSES {
                all.push(scope.spawn(read));
                wait_for(0, keepers);
            }
            for waiting in 1..=MAX_WAITING {
                all.push(scope.spawn(read));
                wait_for(waiting, MAX_PROCESSES);
            }
            assert_eq!(read(), Err(Unreadable::Busy));
            fs::write(&open, "").expect("written");
            for one in all {
                assert_eq!(one.join().expect("an answer"), Err(Unreadable::Died));
            }
        });
        assert!(readers.shared.queue.lock().keepers <= MAX_PROCESSES);
        for file in [path, open] {
            fs::remove_file(file).expect("removed");
        }
    }
}
