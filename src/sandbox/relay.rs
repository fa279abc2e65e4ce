//! Inside, the way out is a port of the loopback, for programs know proxies by host and port: what
//! connects to it is carried to the socket that the daemon answers on.
//!
//! By poll(2), which tells of a state and not of a change: gVisor's epoll has been seen to miss the end
//! of a stream of which this side had ended its half.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The port: that which proxies have by custom.
const PORT: u16 = 3128;

/// How many connections are carried at once, as many as the daemon serves; one more waits.
const MAX_CONNECTIONS: usize = 64;

/// How much is on its way in one direction of a connection, in bytes.
const BUFFER: usize = 32 * 1024;

/// The variables by which programs know of it. curl does not heed `HTTP_PROXY`, which others do.
pub(super) fn variables() -> Vec<(String, String)> {
    let proxy = format!("http://{}:{PORT}", Ipv4Addr::LOCALHOST);
    let names = [
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ];
    let own = ["no_proxy", "NO_PROXY"].map(|name| (name, "localhost,127.0.0.1,::1".to_owned()));
    let proxies = names.map(|name| (name, proxy.clone()));
    let all = proxies.into_iter().chain(own);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Listens, and carries what comes on a thread of its own for as long as the process lives.
///
/// # Errors
/// When the port cannot be had, or no thread.
pub(super) fn begin(socket: PathBuf) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    listener.set_nonblocking(true)?;
    std::thread::Builder::new().spawn(move || carry(&listener, &socket))?;
    Ok(())
}

fn carry(listener: &TcpListener, socket: &Path) {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let mut polled: Vec<PollFd> = connections.iter().flat_map(Connection::wanted).collect();
        if connections.len() < MAX_CONNECTIONS {
            polled.push(PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            // For want of memory, which may pass.
            Err(_) => std::thread::yield_now(),
        }
        // Whoever connected sees the end of what fails.
        connections.retain_mut(|connection| matches!(connection.advance(), Ok(true)));
        while connections.len() < MAX_CONNECTIONS
            && let Ok((inside, _)) = listener.accept()
        {
            connections.extend(Connection::new(inside, socket));
        }
    }
}

/// Somebody inside, and the daemon.
struct Connection {
    inside: TcpStream,
    outside: UnixStream,
    outward: Way,
    inward: Way,
}

impl Connection {
    fn new(inside: TcpStream, socket: &Path) -> io::Result<Self> {
        let outside = UnixStream::connect(socket)?;
        inside.set_nonblocking(true)?;
        outside.set_nonblocking(true)?;
        Ok(Self {
            inside,
            outside,
            outward: Way::default(),
            inward: Way::default(),
        })
    }

    /// What it waits for. An end that it wants nothing of is left out, for its state would be told
    /// for ever.
    fn wanted(&self) -> impl Iterator<Item = PollFd<'_>> {
        let wanted = |from: &Way, to: &Way| {
            let mut events = PollFlags::empty();
            events.set(PollFlags::POLLIN, from.wants_to_read());
            events.set(PollFlags::POLLOUT, to.wants_to_write());
            (!events.is_empty()).then_some(events)
        };
        let inside = wanted(&self.outward, &self.inward);
        let outside = wanted(&self.inward, &self.outward);
        let inside = inside.map(|events| PollFd::new(self.inside.as_fd(), events));
        let outside = outside.map(|events| PollFd::new(self.outside.as_fd(), events));
        inside.into_iter().chain(outside)
    }

    /// Carries what there is; says whether there may be more.
    fn advance(&mut self) -> io::Result<bool> {
        let (inside, outside) = (&self.inside, &self.outside);
        let end_outside = || outside.shutdown(Shutdown::Write);
        self.outward
            .advance(&mut &*inside, &mut &*outside, end_outside)?;
        let end_inside = || inside.shutdown(Shutdown::Write);
        self.inward
            .advance(&mut &*outside, &mut &*inside, end_inside)?;
        Ok(!(self.outward.is_over && self.inward.is_over))
    }
}

/// One direction.
struct Way {
    buffer: Box<[u8]>,
    /// What of the buffer has been read and not been written yet.
    held: std::ops::Range<usize>,
    has_ended: bool,
    /// Its end has been passed on.
    is_over: bool,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            buffer: vec![0; BUFFER].into(),
            held: 0..0,
            has_ended: false,
            is_over: false,
        }
    }
}

impl Way {
    fn wants_to_read(&self) -> bool {
        self.held.is_empty() && !self.has_ended
    }

    fn wants_to_write(&self) -> bool {
        !self.held.is_empty()
    }

    fn advance(
        &mut self,
        from: &mut impl Read,
        to: &mut impl Write,
        end: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        loop {
            let moved = if self.wants_to_write() {
                let written = to.write(&self.buffer[self.held.clone()]);
                written.map(|count| self.held.start += count)
            } else if self.wants_to_read() {
                from.read(&mut self.buffer).map(|count| {
                    self.held = 0..count;
                    self.has_ended = count == 0;
                })
            } else {
                break;
            };
            match moved {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if !std::mem::replace(&mut self.is_over, true) {
            end()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// What a connection carries between two that have their halves ended at different times.
    #[test]
    fn both_ways_are_carried_to_their_ends() {
        const BYTES: usize = 1 << 20;
        let socket = std::env::temp_dir().join(format!("relay-{}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let daemon = UnixListener::bind(&socket).expect("bound");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("it can");
        let port = listener.local_addr().expect("bound").port();
        let path = socket.clone();
        thread::spawn(move || carry(&listener, &path));
        let answering = thread::spawn(move || {
            for _ in 0..100 {
                let (mut stream, _) = daemon.accept().expect("a connection");
                let mut asked = Vec::new();
                stream.read_to_end(&mut asked).expect("its half ends");
                // All that was asked, backwards, after the other half is over.
                asked.reverse();
                stream.write_all(&asked).expect("awaited");
            }
        });
        for round in 0..100 {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
            let length = if round == 0 { BYTES } else { round };
            let text: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            stream.write_all(&text).expect("carried");
            stream.shutdown(Shutdown::Write).expect("open");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("it ends");
            answer.reverse();
            assert!(answer == text, "{round}: {} of {length}", answer.len());
        }
        answering.join().expect("answered");
        std::fs::remove_file(&socket).expect("there");
    }
}
