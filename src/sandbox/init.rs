//! The first process inside: starts the program, reaps, asks it to end, and tells what became of it.
//! A runtime's own exit code cannot tell 137 from SIGKILL, and says nothing of what is left.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, dup2_stdin};
use rustix::process::{WaitOptions, wait};

use super::order::Order;
use super::relay;
use super::report::{Failed, Line, MAX_LEFT, Reporter};
use crate::domain::{self, Exit, LeftBehind, SUMMARY_CHARS, StreamName, summarize};

/// What the first argument has to be: orders of another version may mean something else.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The signal that asks it to send SIGTERM to the program. Not that itself, at which Kata Containers
/// ends the virtual machine and leaves nobody any time.
pub(super) const ASK: Signal = Signal::SIGUSR1;

/// The exit code of who was not started by the daemon: `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;

/// The exit code of who could not start the program: that of env(1) and others for it.
pub(super) const FAILED: u8 = 125;

/// How often it is looked whether the output is still held.
const LOOK: Duration = Duration::from_millis(2);

/// What it is told as it starts: [`Bundle`](super::bundle) has written it.
struct Place {
    report: PathBuf,
    /// The socket of the way out, if there is one.
    proxy: Option<PathBuf>,
}

impl Place {
    fn read() -> Option<Self> {
        let mut args = std::env::args_os().skip(1);
        if args.next()? != VERSION {
            return None;
        }
        let (report, proxy) = (args.next()?.into(), PathBuf::from(args.next()?));
        Some(Self {
            report,
            proxy: Some(proxy).filter(|path| path != Path::new("")),
        })
    }
}

/// Is the first process of a sandbox: all that a `main` of that has to do. Starts what it is told to on
/// its standard input, as soon as it is told all of it; nothing, if that ends before.
pub fn sandbox_init() -> ExitCode {
    let Some(place) = Place::read() else {
        eprintln!(
            "shelly-sandbox-init {VERSION} is started by shelly-executord {VERSION}, inside of a sandbox"
        );
        return ExitCode::from(USAGE);
    };
    let Ok(reporter) = Reporter::open(&place.report) else {
        return ExitCode::from(FAILED);
    };
    match carry_out(&place, &reporter) {
        Ok(code) => ExitCode::from(code),
        Err(failed) => {
            // Whom else could it tell?
            let _ = reporter.add(&Line::Failed(failed));
            ExitCode::from(FAILED)
        }
    }
}

fn carry_out(place: &Place, reporter: &Reporter) -> Result<u8, Failed> {
    let failed = |step: &str, error: &io::Error| Failed {
        step: step.to_owned(),
        errno: error.raw_os_error().unwrap_or(nix::libc::EIO),
    };
    // Waited for below; the program begins without them blocked.
    let signals = SigSet::all();
    let blocked = signals.thread_block();
    blocked.map_err(|errno| failed("cannot block signals", &errno.into()))?;
    let mut text = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut text);
    read.map_err(|error| failed("cannot read what to start", &error))?;
    if text.is_empty() {
        // There was no call for it.
        return Ok(0);
    }
    let order: Order = serde_json::from_slice(&text)
        .map_err(|error| failed("cannot understand what to start", &error.into()))?;
    drop(text);
    let started = reporter.add(&Line::Started);
    started.map_err(|error| failed("cannot report", &error))?;
    if let Some(proxy) = &place.proxy {
        let relayed = relay::begin(proxy.clone());
        relayed.map_err(|error| failed("cannot listen for the proxy", &error))?;
    }
    order.carry_out(&signals, reporter)
}

impl Order {
    fn carry_out(&self, signals: &SigSet, reporter: &Reporter) -> Result<u8, Failed> {
        let leader = self.start()?;
        let mut asked = false;
        let exit = loop {
            match signals.wait() {
                Ok(Signal::SIGCHLD) => {
                    if let Some(exit) = reap(Some(leader)) {
                        break exit;
                    }
                }
                Ok(signal @ (ASK | Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP)) => {
                    if !std::mem::replace(&mut asked, true) {
                        let count = u32::try_from(others().len()).unwrap_or(u32::MAX);
                        let _ = reporter.add(&Line::Signalled(count));
                    }
                    // It leads its group from before its first instruction.
                    let signal = if signal == ASK {
                        Signal::SIGTERM
                    } else {
                        signal
                    };
                    let _ = killpg(leader, signal);
                    // Who is stopped hears of it only then.
                    let _ = killpg(leader, Signal::SIGCONT);
                }
                Ok(_) | Err(_) => {}
            }
        };
        let mut left = if asked { Vec::new() } else { self.left() };
        left.truncate(MAX_LEFT);
        let _ = reporter.end(exit, left);
        Ok(u8::try_from(exit.shell_status()).unwrap_or(u8::MAX))
    }

    fn start(&self) -> Result<Pid, Failed> {
        let failed = |step: String, error: &std::io::Error| Failed {
            step,
            errno: error.raw_os_error().unwrap_or(nix::libc::EIO),
        };
        let opened = File::open(&self.stdin);
        opened
            .and_then(|file| Ok(dup2_stdin(file)?))
            .map_err(|error| {
                let file = self.stdin.display();
                failed(format!("cannot open standard input `{file}`"), &error)
            })?;
        let dir = self.working_dir.display();
        std::env::set_current_dir(&self.working_dir).map_err(|error| {
            failed(
                format!("cannot change to the working directory `{dir}`"),
                &error,
            )
        })?;
        self.spawn().map_err(|errno| {
            let program = self.program.display();
            failed(format!("cannot execute `{program}`"), &errno.into())
        })
    }

    /// By posix_spawn, which copies no address space: in gVisor that is a third of starting a program.
    fn spawn(&self) -> nix::Result<Pid> {
        let text = |text: &str| CString::new(text).map_err(|_| Errno::EINVAL);
        let texts = |all: &[String]| all.iter().map(|one| text(one)).collect::<Result<_, _>>();
        let program = CString::new(self.program.as_os_str().as_bytes());
        let program = program.map_err(|_| Errno::EINVAL)?;
        let (args, environment): (Vec<CString>, Vec<CString>) =
            (texts(&self.args)?, texts(&self.env)?);
        let argv = [&program].into_iter().chain(&args).map(AsRef::as_ref);
        let argv: Vec<&CStr> = argv.collect();
        let mut attributes = PosixSpawnAttr::init()?;
        // A session of its own, as outside, which POSIX has no name for.
        let own_session = PosixSpawnFlags::from_bits_retain(nix::libc::POSIX_SPAWN_SETSID as _);
        attributes.set_flags(
            PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
                | own_session,
        )?;
        attributes.set_sigmask(&SigSet::empty())?;
        attributes.set_sigdefault(&SigSet::all())?;
        let files = PosixSpawnFileActions::init()?;
        posix_spawnp(&program, &files, &attributes, &argv, &environment)
    }

    /// What outlives the program, when nobody holds its output any more or that has taken too long.
    fn left(&self) -> Vec<LeftBehind> {
        let until = Instant::now() + Duration::from_millis(self.drain_ms);
        let mut before = Vec::new();
        loop {
            let everybody = processes();
            let living = everybody.iter().copied().filter(|pid| lives(*pid));
            let left: Vec<LeftBehind> = living.map(left_behind).collect();
            // A process that is ending has closed all its files already and will be gone at the next look, and a
            // child that it started last may have been missed by this one. So it is over only when two looks in a
            // row find the same processes, and none of them is ending.
            let settled = |left: &LeftBehind| left.held.is_empty() && !is_ending(left.pid);
            let is_settled = everybody == before && left.iter().all(settled);
            if is_settled || Instant::now() >= until {
                return left;
            }
            before = everybody;
            std::thread::sleep(LOOK);
            reap(None);
        }
    }
}

/// Reaps whatever has ended; says how `leader` did if it is among them.
fn reap(leader: Option<Pid>) -> Option<Exit> {
    let mut exit = None;
    // Not nix's, which fails at real-time signals, when the process is gone already.
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if leader.is_some_and(|leader| leader.as_raw() == pid.as_raw_pid()) {
            let signal = status.terminating_signal().map(domain::Signal);
            let code = status.exit_status().map(Exit::Code);
            exit = code.or(signal.map(Exit::Signal));
        }
    }
    exit
}

/// All processes but this one, also such as have ended and are not reaped.
fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut others: Vec<u32> = pids.filter(|pid| *pid != std::process::id()).collect();
    others.sort_unstable();
    others
}

/// Those of them that have not ended.
fn others() -> Vec<u32> {
    let mut others = processes();
    others.retain(|pid| lives(*pid));
    others
}

/// Whether a process is there and has not ended, reaped or not (proc_pid_stat(5)).
fn lives(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // It is called what it likes, UTF-8 or not.
    let stat = String::from_utf8_lossy(&stat);
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes());
    state.is_some_and(|state| !matches!(state.first(), None | Some(b'Z' | b'X')))
}

fn left_behind(pid: u32) -> LeftBehind {
    let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = text
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    LeftBehind {
        pid,
        command: command(&words),
        held: [(StreamName::Stdout, 1), (StreamName::Stderr, 2)]
            .into_iter()
            .filter(|(_, fd)| holds(pid, *fd))
            .map(|(name, _)| name)
            .collect(),
        killed: true,
    }
}

/// A command in a line: of a long one no argument in part. The daemon masks secrets in it, which are not known here, and
/// would not recognise what a cut leaves of one.
fn command(words: &[Cow<'_, str>]) -> String {
    let whole = words.join(" ");
    if whole.chars().nth(SUMMARY_CHARS).is_none() {
        return summarize(&whole);
    }
    let (mut shown, mut length) = (String::new(), 0);
    for word in words {
        // With the blank behind it, and what stands for the rest.
        length += word.chars().count() + 1;
        if length + 1 > SUMMARY_CHARS {
            break;
        }
        shown.push_str(word);
        shown.push(' ');
    }
    shown.push('…');
    summarize(&shown)
}

/// Whether a process has nothing open any more.
fn is_ending(pid: u32) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
    open.is_ok_and(|mut open| open.next().is_none())
}

/// Whether a process holds what this one has as its descriptor `fd`.
fn holds(pid: u32, fd: u32) -> bool {
    let Ok(own) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else {
        return false;
    };
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|link| link == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_command_no_argument_is_shown_in_part() {
        let shown = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| Cow::Borrowed(*word)).collect();
            command(&words)
        };
        let (long, full) = ("x".repeat(150), "x".repeat(SUMMARY_CHARS));
        let (long, full) = (long.as_str(), full.as_str());
        let secret = "correct horse battery staple 01234567890123456789";
        assert_eq!(shown(&["sleep", "60"]), "sleep 60");
        assert_eq!(shown(&["a", long, "b"]), format!("a {long} b"));
        assert_eq!(shown(&["a", long, secret, "b"]), format!("a {long} …"));
        assert_eq!(shown(&["x".repeat(300).as_str()]), "…");
        assert_eq!(shown(&[full]), full);
    }
}
