//! Reads one pipe into its capture: on the event loop while it is small, on a thread of its own
//! when it is not, so that no command's output keeps the daemon from its timers or its callers.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl, splice};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::stat::fstat;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::capture::{Capture, Held, PACKET_BYTES, SMALL_BYTES};
use super::ready::watch;
use super::spool::SpoolFile;
use crate::domain::CONTEXT;

/// The size that the pipe of a bulk reader gets (`F_SETPIPE_SZ`; 1 MiB is what
/// `/proc/sys/fs/pipe-max-size` allows everybody by default). Larger gains nothing.
const BULK_BYTES: usize = 1 << 20;

/// The buffer of a bulk reader. More is memory and gains nothing.
const BUFFER_BYTES: usize = 512 * 1024;

/// The size that the pipe of a stream gets that is no small one: its writer goes on while it is
/// read, where each would wait for the other at every 64 KiB. Larger ones take fresh memory for it.
const WIDE_BYTES: usize = 256 * 1024;

/// What a bulk reader still takes after it was told to stop: a full pipe and no more, should
/// somebody whom no signal reached go on writing.
const LAST_BYTES: usize = BULK_BYTES;

/// The reading end of a pipe that nobody reads yet.
#[derive(Debug)]
pub(super) struct Watched(AsyncFd<File>);

impl Watched {
    /// Watches the reading end of a pipe, which must not block. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(super) fn new(pipe: OwnedFd) -> io::Result<Self> {
        watch(File::from(pipe), Interest::READABLE).map(Self)
    }
}

/// One output stream being read.
#[derive(Debug)]
pub(super) struct Reader {
    capture: Arc<Capture>,
    state: State,
}

#[derive(Debug)]
enum State {
    Inline(AsyncFd<File>),
    Bulk(Bulk),
    /// With the pipe, unless a thread of its own has taken that over.
    Ended(Option<AsyncFd<File>>),
}

#[derive(Debug)]
struct Bulk {
    /// Completes with the thread that reads.
    ended: oneshot::Receiver<()>,
    stop: Arc<EventFd>,
    /// Completes once the stream's spool file is begun, or cannot be.
    begun: Option<oneshot::Receiver<()>>,
    inode: Option<u64>,
}

/// What reading an inline stream came to.
enum Progress {
    /// The pipe is empty for now.
    Drained,
    /// There may be more, but others have waited long enough.
    Paused,
    /// Everybody has closed it, or it cannot be read.
    Ended,
    /// The stream is no small one.
    Outgrown,
}

impl Reader {
    /// Reads a pipe into a capture.
    pub(super) fn new(pipe: Watched, capture: Arc<Capture>) -> Self {
        let state = State::Inline(pipe.0);
        Self { capture, state }
    }

    /// Whether the stream may still bring something.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::Ended(_))
    }

    /// Waits for the next piece of the stream and takes it in. Cancel-safe: a piece is either in
    /// the capture or still in the pipe.
    pub(super) async fn step(&mut self) {
        let progress = match &mut self.state {
            State::Inline(pipe) => match pipe.readable().await {
                Ok(mut ready) => {
                    let progress = read_inline(ready.get_inner(), &self.capture);
                    if matches!(progress, Progress::Drained) {
                        ready.clear_ready();
                    }
                    progress
                }
                Err(error) => {
                    self.capture.fail(error);
                    Progress::Ended
                }
            },
            State::Bulk(bulk) => {
                if (&mut bulk.ended).await.is_err() {
                    self.capture.fail(panicked());
                }
                Progress::Ended
            }
            State::Ended(_) => std::future::pending().await,
        };
        self.come_to(progress);
    }

    fn come_to(&mut self, progress: Progress) {
        match progress {
            Progress::Drained | Progress::Paused => {}
            Progress::Ended => {
                let pipe = std::mem::replace(&mut self.state, State::Ended(None)).into_pipe();
                self.state = State::Ended(pipe);
            }
            Progress::Outgrown => self.hand_over(),
        }
    }

    /// Takes what is in the pipe by now, without waiting to be told of it.
    pub(super) fn look(&mut self) {
        if let State::Inline(pipe) = &self.state {
            let mut progress = Progress::Paused;
            while matches!(progress, Progress::Paused) {
                progress = read_inline(pipe.get_ref(), &self.capture);
            }
            self.come_to(progress);
        }
    }

    /// Takes what is in the pipe by now, and hands out the pipe where nobody else has had it. For when
    /// nobody writes any more.
    pub(super) async fn finish(mut self) -> Option<AsyncFd<File>> {
        self.look();
        if let State::Bulk(bulk) = &mut self.state {
            // An eventfd takes any number of these without blocking (eventfd(2)).
            let _ = bulk.stop.write(1);
            if (&mut bulk.ended).await.is_err() {
                self.capture.fail(panicked());
            }
        }
        self.state.into_pipe()
    }

    /// Leaves the stream, which is sealed, to a thread that reads it into the spool until everybody has
    /// closed it. Returns when the spool has what was read so far, so that the memory may be let go of.
    pub(super) async fn keep_reading(mut self) {
        self.hand_over();
        self.begun().await;
    }

    /// Waits until a thread that reads the stream, if one does, has put into the spool what was read before.
    pub(super) async fn begun(&mut self) {
        if let State::Bulk(bulk) = &mut self.state
            && let Some(begun) = bulk.begun.take()
        {
            // The other end only goes without a word when the thread panics.
            let _ = begun.await;
        }
    }

    /// The pipe by its inode, while it is being read.
    pub(super) fn inode(&self) -> Option<u64> {
        match &self.state {
            State::Inline(pipe) => inode(pipe.get_ref()),
            State::Bulk(bulk) => bulk.inode,
            State::Ended(_) => None,
        }
    }

    /// Moves an inline stream to a thread of its own; not one of a pool, of which those that are
    /// kept for good would leave nothing for the others.
    fn hand_over(&mut self) {
        if !matches!(self.state, State::Inline(_)) {
            return;
        }
        let state = std::mem::replace(&mut self.state, State::Ended(None));
        let Some(pipe) = state.into_pipe() else {
            return;
        };
        match Bulk::start(pipe.into_inner(), &self.capture) {
            Ok(bulk) => self.state = State::Bulk(bulk),
            Err(error) => self.capture.fail(error),
        }
    }
}

impl State {
    fn into_pipe(self) -> Option<AsyncFd<File>> {
        match self {
            Self::Inline(pipe) => Some(pipe),
            Self::Bulk(_) => None,
            Self::Ended(pipe) => pipe,
        }
    }
}

impl Bulk {
    fn start(pipe: File, capture: &Arc<Capture>) -> io::Result<Self> {
        /// It calls nothing deep.
        const STACK_BYTES: usize = 256 * 1024;
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let stop = Arc::new(stop);
        let inode = inode(&pipe);
        let (begin, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let (capture, told) = (Arc::clone(capture), Arc::clone(&stop));
        // From the heap of the event loop, where the answer is made: malloc(3) has several, a block that
        // grows or is freed stays with its own, and what one has free is of no use to another.
        let buffer = Vec::with_capacity(CONTEXT + BUFFER_BYTES);
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.name("output".to_owned()).spawn(move || {
            let (spooled, held) = capture.begin_file(buffer);
            // Nobody listens unless the stream is kept.
            let _ = begin.send(());
            let mut sink = Sink::new(&capture, spooled.as_deref(), held);
            read_bulk(&pipe, &told, &mut sink);
            sink.flush();
            if let Some(file) = spooled {
                file.finish();
            }
            let _ = end.send(());
        })?;
        Ok(Self {
            ended,
            stop,
            begun: Some(begun),
            inode,
        })
    }
}

fn panicked() -> io::Error {
    io::Error::other("the thread that read it panicked")
}

/// Reads what is in the pipe by now. Until it says that there is no more: whose writer has set `O_DIRECT`, that
/// one gives a packet at a time.
fn read_inline(pipe: &File, capture: &Capture) -> Progress {
    /// A writer of single bytes can be as fast as this.
    const READS: usize = 64;
    for _ in 0..READS {
        let read = capture.fill(|head| match head.capacity() - head.len() {
            ..PACKET_BYTES => read_small(pipe, head),
            PACKET_BYTES.. => rustix::io::read(pipe, spare_capacity(head)),
        });
        match read {
            None => return Progress::Outgrown,
            Some(Ok(0)) => return Progress::Ended,
            Some(Ok(read)) if read == SMALL_BYTES => widen(pipe, WIDE_BYTES),
            Some(Ok(_) | Err(Errno::INTR)) => {}
            Some(Err(Errno::AGAIN)) => return Progress::Drained,
            Some(Err(error)) => {
                capture.fail(error.into());
                return Progress::Ended;
            }
        }
    }
    Progress::Paused
}

/// Reads a small piece of a stream, for which it takes memory only if there is one: most have none.
fn read_small(pipe: &File, head: &mut Vec<u8>) -> Result<usize, Errno> {
    let mut room = [MaybeUninit::uninit(); PACKET_BYTES];
    let (read, _) = rustix::io::read(pipe, &mut room[..])?;
    if !read.is_empty() {
        Capture::append(head, read);
    }
    Ok(read.len())
}

fn widen(pipe: &File, bytes: usize) {
    // Refused beyond the user's share of pipe memory (pipe(7)); the default size works too.
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(bytes as i32));
}

fn inode(pipe: &File) -> Option<u64> {
    fstat(pipe).ok().map(|stat| stat.st_ino)
}

/// Reads until everybody has closed the pipe, or until told to stop and nothing is left in it.
fn read_bulk(pipe: &File, stop: &EventFd, sink: &mut Sink<'_>) {
    widen(pipe, BULK_BYTES);
    let mut stopping = false;
    let mut last_bytes = 0;
    loop {
        match sink.take(pipe) {
            Ok(0) => return,
            Ok(taken) => last_bytes += if stopping { taken } else { 0 },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if stopping {
                    return;
                }
                sink.rest();
                let mut fds = [
                    PollFd::new(pipe.as_fd(), PollFlags::POLLIN),
                    PollFd::new(stop.as_fd(), PollFlags::POLLIN),
                ];
                // An interrupted poll is as good as one that found something to read.
                let _ = poll(&mut fds, PollTimeout::NONE);
            }
            Err(error) => return sink.capture.fail(error),
        }
        stopping = stopping || stop.read().is_ok();
        if last_bytes > LAST_BYTES {
            return;
        }
    }
}

/// Where a bulk stream goes: through a buffer while the capture or the spool wants the bytes,
/// nowhere when both have their fill.
struct Sink<'a> {
    capture: &'a Capture,
    spooled: Option<&'a SpoolFile>,
    buffer: Vec<u8>,
    /// How much of the buffer has been handed on: what stands before what is held back.
    done: usize,
    /// `/dev/null` takes pages without looking at them, where reading would copy them.
    null: Option<File>,
}

impl<'a> Sink<'a> {
    fn new(capture: &'a Capture, spooled: Option<&'a SpoolFile>, held: Held) -> Self {
        Self {
            capture,
            spooled,
            buffer: held.bytes,
            done: held.done,
            null: OpenOptions::new().write(true).open("/dev/null").ok(),
        }
    }

    /// Takes in what is in the pipe, or a part of it; 0 at the end of the stream.
    fn take(&mut self, pipe: &File) -> io::Result<usize> {
        let spools = self.spooled.is_some_and(SpoolFile::has_room);
        match &self.null {
            Some(null) if !spools && !self.capture.wants_bytes() => {
                let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
                let moved = splice(pipe, None, null, None, BULK_BYTES, flags)?;
                self.flush();
                // At its end it is as long as it was, and hashed.
                if moved > 0 {
                    self.capture.count(moved);
                    if let Some(file) = self.spooled {
                        file.cut();
                    }
                }
                Ok(moved)
            }
            _ => self.read(pipe),
        }
    }

    fn read(&mut self, pipe: &File) -> io::Result<usize> {
        self.buffer.reserve_exact(BUFFER_BYTES);
        let read = rustix::io::read(pipe, spare_capacity(&mut self.buffer))?;
        self.hand_on(false);
        Ok(read)
    }

    /// Hands on what is held back: nothing follows that could make a secret of it.
    fn flush(&mut self) {
        self.hand_on(true);
    }

    fn hand_on(&mut self, ended: bool) {
        let secrets = self.capture.secrets();
        let done = secrets.mask(&mut self.buffer, self.done, ended);
        let piece = &self.buffer[self.done..done];
        if let Some(file) = self.spooled {
            file.append(piece);
        }
        self.capture.absorb(piece);
        // The last bytes stay, for whether a word begins after them.
        let handed_on = done.saturating_sub(CONTEXT);
        self.buffer.drain(..handed_on);
        self.done = done - handed_on;
    }

    /// Lets go of the buffer's room: nobody knows how long the next piece is in coming.
    fn rest(&mut self) {
        self.buffer.shrink_to(CONTEXT);
    }
}
