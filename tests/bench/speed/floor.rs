//! The floor: the least any program can do to run a command and capture it.
//!
//! `posix_spawn` with two pipes, read both to end of file, wait. It runs in a
//! process of its own, so that its memory is as small as it can be, and takes
//! orders line by line, so that rounds can be interleaved without a restart.

use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use nix::fcntl::OFlag;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::Fallible;

/// What is kept of an output; the rest is read and dropped. The shipped `max_output_bytes`.
const KEEP: usize = 1 << 20;

/// One line from the harness.
#[derive(Serialize, Deserialize)]
enum Order {
    /// One after another: answers the nanoseconds of each.
    Latency { argv: Vec<String>, count: usize },
    /// `total` executions on `threads` threads: answers the nanoseconds of all together.
    Throughput {
        argv: Vec<String>,
        threads: usize,
        total: usize,
    },
}

/// The floor as the harness sees it.
pub struct Floor {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Floor {
    pub fn start() -> Fallible<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--floor")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child
            .stdin
            .take()
            .ok_or("the floor has no standard input")?;
        let answers = BufReader::new(
            child
                .stdout
                .take()
                .ok_or("the floor has no standard output")?,
        );
        Ok(Self {
            child,
            orders,
            answers,
        })
    }

    /// Seconds of each of `count` executions, one after another.
    pub fn latency(&mut self, argv: &[&str], count: usize) -> Fallible<Vec<f64>> {
        self.order(&Order::Latency {
            argv: owned(argv),
            count,
        })
    }

    /// Executions per second on `threads` threads.
    pub fn throughput(&mut self, argv: &[&str], threads: usize, total: usize) -> Fallible<f64> {
        let seconds = self.order(&Order::Throughput {
            argv: owned(argv),
            threads,
            total,
        })?;
        Ok(total as f64 / seconds.first().ok_or("the floor gave no time")?)
    }

    fn order(&mut self, order: &Order) -> Fallible<Vec<f64>> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        self.orders.write_all(line.as_bytes())?;
        line.clear();
        self.answers.read_line(&mut line)?;
        let nanos: Vec<u64> = serde_json::from_str(&line)
            .map_err(|error| format!("the floor answered {line:?}: {error}"))?;
        Ok(nanos.iter().map(|&nanos| nanos as f64 / 1e9).collect())
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn owned(argv: &[&str]) -> Vec<String> {
    argv.iter().map(|&argument| argument.to_owned()).collect()
}

/// The floor as a process: orders from standard input until it ends.
pub fn serve() -> Fallible<()> {
    raise_descriptor_limit()?;
    for line in std::io::stdin().lines() {
        let nanos = match serde_json::from_str(&line?)? {
            Order::Latency { argv, count } => latency(&Plan::new(&argv)?, count)?,
            Order::Throughput {
                argv,
                threads,
                total,
            } => vec![throughput(&Arc::new(Plan::new(&argv)?), threads, total)?],
        };
        println!("{}", serde_json::to_string(&nanos)?);
    }
    Ok(())
}

/// 256 executions at once with two pipes each do not fit into the usual 1024 descriptors. Only here: the daemon
/// has to look after its own limit.
fn raise_descriptor_limit() -> Fallible<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

fn latency(plan: &Plan, count: usize) -> Fallible<Vec<u64>> {
    let mut room = Room::default();
    let mut nanos = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        plan.run(&mut room)?;
        nanos.push(start.elapsed().as_nanos() as u64);
    }
    Ok(nanos)
}

fn throughput(plan: &Arc<Plan>, threads: usize, total: usize) -> Fallible<u64> {
    let taken = Arc::new(AtomicUsize::new(0));
    let barrier = Arc::new(Barrier::new(threads + 1));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (plan, taken, barrier) = (plan.clone(), taken.clone(), barrier.clone());
            std::thread::spawn(move || {
                let mut room = Room::default();
                barrier.wait();
                while taken.fetch_add(1, Ordering::Relaxed) < total {
                    plan.run(&mut room)?;
                }
                Ok::<(), std::io::Error>(())
            })
        })
        .collect();
    barrier.wait();
    let start = Instant::now();
    for worker in workers {
        worker
            .join()
            .map_err(|_| "a thread of the floor panicked")??;
    }
    Ok(start.elapsed().as_nanos() as u64)
}

/// A command with everything that can be done once done once.
struct Plan {
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl Plan {
    fn new(argv: &[String]) -> Fallible<Self> {
        let argv = argv
            .iter()
            .map(|argument| CString::new(argument.as_str()))
            .collect::<Result<_, _>>()?;
        // What the daemon gives its commands: the shell has as much to import.
        let env = [
            c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            c"HOME=/root",
            c"USER=root",
            c"LOGNAME=root",
            c"SHELL=/bin/bash",
            c"LANG=C.UTF-8",
            c"TERM=dumb",
            c"PAGER=cat",
            c"GIT_PAGER=cat",
            c"MANPAGER=cat",
            c"SYSTEMD_PAGER=cat",
            c"DEBIAN_FRONTEND=noninteractive",
            c"GIT_TERMINAL_PROMPT=0",
            c"GIT_CONFIG_COUNT=1",
            c"GIT_CONFIG_KEY_0=gc.autoDetach",
            c"GIT_CONFIG_VALUE_0=false",
            c"SHELLY_EXECUTION_ID=01990000-0000-7000-8000-000000000000",
            c"SHELLY_INSTANCE_ID=01990000-0000-7000-8000-000000000000",
        ];
        Ok(Self {
            argv,
            env: env.iter().map(|&variable| variable.to_owned()).collect(),
        })
    }

    /// Runs the command, keeps its output in `room`, and fails unless it exits with 0.
    fn run(&self, room: &mut Room) -> std::io::Result<()> {
        let (stdout, stdout_end) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let (stderr, stderr_end) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let pid = self.spawn([(stdout_end.as_raw_fd(), 1), (stderr_end.as_raw_fd(), 2)])?;
        drop((stdout_end, stderr_end));
        room.drain([Some(stdout), Some(stderr)])?;
        let ended = nix::sys::wait::waitpid(pid, None)?;
        if ended == nix::sys::wait::WaitStatus::Exited(pid, 0) {
            return Ok(());
        }
        let text = format!("{:?} ended with {ended:?}", self.argv);
        Err(std::io::Error::other(text))
    }

    fn spawn(&self, moves: [(RawFd, RawFd); 2]) -> std::io::Result<nix::unistd::Pid> {
        let mut actions = nix::spawn::PosixSpawnFileActions::init()?;
        for (from, to) in moves {
            actions.add_dup2(from, to)?;
        }
        let attributes = nix::spawn::PosixSpawnAttr::init()?;
        Ok(nix::spawn::posix_spawn(
            self.argv[0].as_c_str(),
            &actions,
            &attributes,
            &self.argv,
            &self.env,
        )?)
    }
}

/// What one thread reads into, reused from execution to execution.
struct Room {
    chunk: Box<[u8]>,
    kept: Vec<u8>,
}

impl Default for Room {
    fn default() -> Self {
        // 64 KiB: what a pipe holds.
        Self {
            chunk: vec![0; 1 << 16].into(),
            kept: Vec::new(),
        }
    }
}

impl Room {
    /// Reads both pipes to end of file.
    fn drain(&mut self, mut pipes: [Option<OwnedFd>; 2]) -> std::io::Result<()> {
        self.kept.clear();
        while pipes.iter().any(Option::is_some) {
            // poll(2) passes over negative descriptors.
            let mut watched = [&pipes[0], &pipes[1]].map(|pipe| libc::pollfd {
                fd: pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd),
                events: libc::POLLIN,
                revents: 0,
            });
            // SAFETY: `watched` is an array of two, alive during the call.
            nix::errno::Errno::result(unsafe { libc::poll(watched.as_mut_ptr(), 2, -1) })?;
            for (pipe, watched) in pipes.iter_mut().zip(watched) {
                let Some(open) = pipe.as_ref().filter(|_| watched.revents != 0) else {
                    continue;
                };
                let length = nix::unistd::read(open, &mut self.chunk)?;
                if length == 0 {
                    *pipe = None;
                }
                let wanted = length.min(KEEP - self.kept.len());
                self.kept.extend_from_slice(&self.chunk[..wanted]);
            }
        }
        Ok(())
    }
}
