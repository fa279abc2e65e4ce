use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::{Pid, geteuid};
use rustix::process::{self, PidfdFlags};

use super::kernel_file::KernelFile;
use super::marks::Marks;
use crate::domain::{self, Exit, StreamName};

/// What proc_pid_stat(5) says of a process, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// Whether all of it has ended. Where only the main thread has, the kernel says zombie too.
    pub is_dead: bool,
    /// Whether its main thread has ended before the others.
    pub is_headless: bool,
    /// Whether the kernel made it for itself.
    pub is_of_kernel: bool,
    pub parent: Pid,
    pub session: Pid,
    /// Ticks since boot; with the pid it names a process for good.
    pub started: u64,
    /// What it has used up, and children that it has waited for, in ticks.
    pub used: u64,
}

/// How long so many ticks of `/proc` are: `USER_HZ` is 100 on all architectures that this runs on (time(7)).
pub(super) fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(10))
}

/// What the kernel flags its own threads with (`include/linux/sched.h`; systemd and ps(1) go by it, too).
const PF_KTHREAD: u32 = 0x0020_0000;

pub(super) fn stat(pid: Pid) -> Option<Stat> {
    look(pid).ok().flatten()
}

/// The same; `None` of one that is not there.
///
/// # Errors
/// When that cannot be told: there may be no descriptor left to look with.
pub(super) fn look(pid: Pid) -> io::Result<Option<Stat>> {
    let file = KernelFile::open(format!("/proc/{pid}/stat"));
    match file.and_then(|file| file.read()) {
        Ok(text) => Ok(parse_stat(&text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a file of `/proc` cannot be read because there is no such process any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The name, in parentheses, may itself hold blanks and parentheses: fields count from the last.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let threads: u32 = fields.get(17)?.parse().ok()?;
    let flags: u32 = fields.get(6)?.parse().ok()?;
    let ended = matches!(*fields.first()?, "Z" | "X" | "x");
    Some(Stat {
        is_dead: ended && threads <= 1,
        is_headless: ended && threads > 1,
        is_of_kernel: flags & PF_KTHREAD != 0,
        parent: Pid::from_raw(fields.get(1)?.parse().ok()?),
        session: Pid::from_raw(fields.get(3)?.parse().ok()?),
        started: fields.get(19)?.parse().ok()?,
        used: (fields.get(11..15)?.iter())
            .map(|ticks| ticks.parse::<u64>().unwrap_or_default())
            .sum(),
    })
}

/// Whether a child of this process runs another program than this one.
pub(in crate::runner) fn has_executed(pid: Pid) -> bool {
    let program = |of: &str| fs::read_link(format!("/proc/{of}/exe"));
    match (program(&pid.to_string()), program("self")) {
        (Ok(its), Ok(own)) => its != own,
        // It has ended, or cannot be looked at.
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// How a process ended that has not been waited for. `None` where it has not ended, or where that is not for
/// this process to know.
pub(in crate::runner) fn exit(pid: Pid) -> Option<Exit> {
    // Whose status is not told it is 0 (proc_pid_stat(5)), which is a success.
    let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let own = geteuid();
    if !own.is_root() && own.as_raw() != owner {
        return None;
    }
    let file = KernelFile::open(format!("/proc/{pid}/stat")).ok()?;
    parse_exit(&file.read().ok()?)
}

/// Its last field, in the form of waitpid(2).
fn parse_exit(text: &str) -> Option<Exit> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let status: i32 = fields.get(49)?.parse().ok()?;
    match (*fields.first()?, status & 0x7F) {
        ("Z", 0) => Some(Exit::Code((status >> 8) & 0xFF)),
        ("Z", signal) => Some(Exit::Signal(domain::Signal(signal))),
        _ => None,
    }
}

/// The children of one thread, `/proc/PID/task/TID/children`. `None` where the kernel was built
/// without `CONFIG_PROC_CHILDREN`.
pub(super) fn children_of_thread(pid: Pid, tid: Pid) -> Option<Vec<Pid>> {
    fs::read_to_string(children_file(pid, tid))
        .ok()
        .map(|text| pids(&text))
}

/// The path of the list of a thread's children.
pub(super) fn children_file(pid: Pid, tid: Pid) -> String {
    format!("/proc/{pid}/task/{tid}/children")
}

/// The process ids that a list of the kernel's names.
pub(super) fn pids(list: &str) -> Vec<Pid> {
    list.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .map(Pid::from_raw)
        .collect()
}

/// The children of all threads of a process.
pub(super) fn children(pid: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .filter_map(|tid| children_of_thread(pid, Pid::from_raw(tid)))
        .flatten()
        .collect()
}

/// Every process there is.
pub(super) fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .map(Pid::from_raw)
        .collect()
}

/// Reads a file of `/proc/PID`, from another thread's directory where the main thread has ended
/// and taken its memory along.
fn read_of_any_thread(pid: Pid, file: &str) -> Option<Vec<u8>> {
    let of_main = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    if !of_main.is_empty() {
        return Some(of_main);
    }
    let mut texts = threads(pid).filter_map(|thread| fs::read(thread.join(file)).ok());
    Some(texts.find(|text| !text.is_empty()).unwrap_or_default())
}

/// How many generations are looked back: more than anybody nests, and an end to it.
const GENERATIONS: usize = 256;

/// Whether a process shares the session that `ancestor` began, or descends from it.
pub(super) fn descends(pid: Pid, ancestor: Pid) -> bool {
    let mut current = pid;
    for _ in 0..GENERATIONS {
        match stat(current) {
            _ if current == ancestor => return true,
            Some(stat) if stat.session == ancestor => return true,
            Some(stat) if stat.parent.as_raw() > 1 => current = stat.parent,
            Some(_) | None => return false,
        }
    }
    false
}

/// What the environment that a process was given at its execve says of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    /// This.
    Value(String),
    /// Nothing.
    Unset,
    /// It cannot be told: the process is in the middle of an execve, or of its end, and has
    /// neither environment nor arguments.
    Unreadable,
}

pub(super) fn variable(pid: Pid, name: &str) -> Variable {
    let read = |file| read_of_any_thread(pid, file).unwrap_or_default();
    let mut environment = read("environ");
    if environment.is_empty() {
        // An environment may be empty; together with the arguments it is not.
        let has_arguments = !read("cmdline").is_empty();
        // The execve may have been over by then.
        environment = read("environ");
        if environment.is_empty() && !has_arguments {
            return Variable::Unreadable;
        }
    }
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    value.map_or(Variable::Unset, |value| {
        Variable::Value(String::from_utf8_lossy(value).into_owned())
    })
}

/// The name that the kernel knows a process's program by (proc_pid_comm(5)).
pub(super) fn program(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// Its arguments joined by blanks, or its name in brackets as ps(1) writes it when there are none.
pub(in crate::runner) fn command_line(pid: Pid) -> String {
    let arguments = read_of_any_thread(pid, "cmdline").unwrap_or_default();
    let text = String::from_utf8_lossy(&arguments)
        .trim_end_matches('\0')
        .replace('\0', " ");
    if !text.is_empty() {
        return text;
    }
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("[{}]", String::from_utf8_lossy(&name).trim())
}

/// Which of the given pipes (by inode) a process has open, as far as a look at its first descriptors tells,
/// at `budget` of them at the most; those it takes are subtracted. Nothing but the links is read (proc_pid_fd(5)):
/// the file system of an open file may not answer. A main thread that has ended has none; what the others have then counts.
pub(in crate::runner) fn held_streams(
    pid: Pid,
    pipes: &[(StreamName, u64)],
    budget: &mut usize,
) -> Vec<StreamName> {
    let links = |budget, directory: PathBuf| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let links = entries.take(budget);
        let links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.collect::<Vec<PathBuf>>()
    };
    let of_main = links(*budget, format!("/proc/{pid}/fd").into());
    let mut of_others = threads(pid).map(|thread| links(*budget, thread.join("fd")));
    let links = match of_main.is_empty() {
        true => of_others.find(|links| !links.is_empty()),
        false => Some(of_main),
    };
    let links = links.unwrap_or_default();
    *budget -= links.len();
    let is_held = |inode: &u64| {
        let pipe = PathBuf::from(format!("pipe:[{inode}]"));
        links.contains(&pipe)
    };
    pipes
        .iter()
        .filter(|(_, inode)| is_held(inode))
        .map(|(name, _)| *name)
        .collect()
}

/// Whether a process has closed its standard output, as one does that ends, its main thread alone aside.
pub(super) fn is_parting(pid: Pid) -> bool {
    let stdout = fs::symlink_metadata(format!("/proc/{pid}/fd/1"));
    let is_closed = stdout.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    is_closed && !threads(pid).any(|thread| fs::symlink_metadata(thread.join("fd/1")).is_ok())
}

/// The directories of a process's threads, as far as it may be looked into.
fn threads(pid: Pid) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Sends SIGKILL to `pid` if it still is the process that `seen` describes. Through a pidfd, so
/// that the process cannot become another between the look and the signal.
pub(super) fn kill_if_same(pid: Pid, seen: Stat) -> io::Result<()> {
    let pidfd = pidfd_open(pid)?;
    if stat(pid).is_some_and(|now| now.started == seen.started) {
        pidfd_send_signal(&pidfd, Signal::SIGKILL)?;
    }
    Ok(())
}

/// Kills every process whose environment marks it with `name=value`, with the session it is in and
/// all its descendants, marked or not; this process excepted. Returns how many there were once
/// they are dead, or after a bounded time: nothing kills an uninterruptible sleep.
pub(in crate::runner) fn kill_marked(name: &'static str, value: &str) -> usize {
    const PATIENCE: Duration = Duration::from_secs(1);
    let marked = Variable::Value(value.to_owned());
    let marks = Marks::default();
    let deadline = Instant::now() + PATIENCE;
    let mut killed = HashSet::new();
    loop {
        // The threads of the kernel, of which there are hundreds, have no environment to look for.
        let may_be_marked = |stat: &Stat| !stat.is_dead && !stat.is_of_kernel;
        let living: Vec<(Pid, Stat)> = all()
            .into_iter()
            .filter(|pid| *pid != Pid::this())
            .filter_map(|pid| Some((pid, stat(pid).filter(may_be_marked)?)))
            .collect();
        let pids: Vec<Pid> = living.iter().map(|(pid, _)| *pid).collect();
        let told = marks.of_all(&pids, name);
        let are_marked: HashSet<Pid> = (pids.into_iter().zip(told))
            .filter_map(|(pid, told)| (told == marked).then_some(pid))
            .collect();
        let company = company(&living, |pid| are_marked.contains(&pid));
        for (pid, seen) in &company {
            killed.insert((*pid, seen.started));
            if let Err(error) = kill_if_same(*pid, *seen) {
                tracing::debug!(%pid, %error, "a marked process is gone already");
            }
        }
        let is_dying = |(pid, stat): &(Pid, Stat)| killed.contains(&(*pid, stat.started));
        if (company.is_empty() && !living.iter().any(is_dying)) || Instant::now() >= deadline {
            let silent: Vec<i32> = marks.silent().into_iter().map(Pid::as_raw).collect();
            if !silent.is_empty() {
                tracing::warn!(pids = ?silent, "these processes do not tell whose they are, and are left alone: end them if an earlier command has left them");
            }
            return killed.len();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The marked among `living`, everybody in a session of theirs (a session never holds anybody but
/// descendants of the one who made it), and their descendants.
fn company(living: &[(Pid, Stat)], is_marked: impl Fn(Pid) -> bool) -> Vec<(Pid, Stat)> {
    let marked = living.iter().filter(|(pid, _)| is_marked(*pid));
    let (mut pids, sessions): (HashSet<Pid>, HashSet<Pid>) =
        marked.map(|(pid, stat)| (*pid, stat.session)).unzip();
    loop {
        let before = pids.len();
        for (pid, stat) in living {
            if sessions.contains(&stat.session) || pids.contains(&stat.parent) {
                pids.insert(*pid);
            }
        }
        if pids.len() == before {
            break;
        }
    }
    let is_in = |(pid, _): &&(Pid, Stat)| pids.contains(pid);
    living.iter().filter(is_in).copied().collect()
}

pub(super) fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    let pid = process::Pid::from_raw(pid.as_raw()).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(process::pidfd_open(pid, PidfdFlags::empty())?)
}

pub(super) fn pidfd_send_signal(pidfd: &OwnedFd, signal: Signal) -> io::Result<()> {
    let signal =
        process::Signal::from_named_raw(signal as i32).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(process::pidfd_send_signal(pidfd, signal)?)
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    use super::*;

    #[test]
    fn a_name_full_of_parentheses_does_not_confuse() {
        let text = "42 (a) Z 1 (b) S 1 42 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 9 9";
        let stat = parse_stat(text).expect("parsed");
        assert_eq!(
            stat,
            Stat {
                is_dead: false,
                is_headless: false,
                is_of_kernel: false,
                parent: Pid::from_raw(1),
                session: Pid::from_raw(7),
                started: 12345,
                used: 5 + 6 + 7 + 8,
            }
        );
    }

    #[test]
    fn a_zombie_with_living_threads_is_not_dead() {
        let text =
            |threads| format!("42 (a) Z 1 42 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 {threads} 0 12345");
        assert!(parse_stat(&text(1)).expect("parsed").is_dead);
        let headless = parse_stat(&text(2)).expect("parsed");
        assert!(headless.is_headless && !headless.is_dead);
    }

    #[test]
    fn threads_of_the_kernel_are_told_apart() {
        // kthreadd(9), and somebody who calls himself that.
        for (flags, is_of_kernel) in [(2_129_984, true), (4_194_560, false)] {
            let text = format!("2 (kthreadd) S 0 0 0 0 -1 {flags} 0 0 0 0 0 1 0 0 20 0 1 0 3");
            let stat = parse_stat(&text).expect("parsed");
            assert_eq!(stat.is_of_kernel, is_of_kernel, "{text}");
        }
        assert!(!stat(Pid::this()).expect("alive").is_of_kernel);
    }

    #[test]
    fn a_zombie_says_how_it_ended() {
        let text = |state, status| {
            let rest = "0 ".repeat(48);
            format!("42 (a) b) {state} {rest}{status}")
        };
        for (state, status, exit) in [
            ("Z", 0, Some(Exit::Code(0))),
            ("Z", 137 << 8, Some(Exit::Code(137))),
            ("Z", 9, Some(Exit::Signal(domain::Signal(9)))),
            // Dumped core.
            ("Z", 0x80 | 11, Some(Exit::Signal(domain::Signal(11)))),
            ("S", 0, None),
        ] {
            assert_eq!(parse_exit(&text(state, status)), exit, "{state} {status}");
        }
        assert_eq!(exit(Pid::this()), None);
        let mut child = std::process::Command::new("sh");
        let mut child = child.args(["-c", "exit 7"]).spawn().expect("started");
        let pid = Pid::from_raw(child.id() as i32);
        // Until it has ended, and no longer: it is not reaped.
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).expect("it ends");
        assert_eq!(exit(pid), Some(Exit::Code(7)));
        child.wait().expect("reaped");
    }

    #[test]
    fn company_is_sessions_and_descendants() {
        let process = |pid, parent, session| {
            let stat = Stat {
                is_dead: false,
                is_headless: false,
                is_of_kernel: false,
                parent: Pid::from_raw(parent),
                session: Pid::from_raw(session),
                started: 1,
                used: 0,
            };
            (Pid::from_raw(pid), stat)
        };
        let living = [
            process(1, 0, 1),
            process(19, 18, 19),
            process(10, 1, 10),
            process(11, 1, 10),
            process(18, 11, 18),
            process(20, 1, 20),
        ];
        let found = company(&living, |pid| pid == Pid::from_raw(10));
        let pids: Vec<i32> = found.iter().map(|(pid, _)| pid.as_raw()).collect();
        assert_eq!(pids, [19, 10, 11, 18]);
    }

    #[test]
    fn the_look_for_held_streams_is_bounded() {
        let (reading, writing) = nix::unistd::pipe().expect("a pipe");
        let inode = nix::sys::stat::fstat(&writing).expect("open").st_ino;
        let pipes = [(StreamName::Stderr, inode)];
        let held = |budget: &mut usize| held_streams(Pid::this(), &pipes, budget);
        let mut budget = 10_000;
        assert_eq!(held(&mut budget), [StreamName::Stderr]);
        assert!((1..10_000).contains(&budget), "{budget}");
        budget = 1;
        assert_eq!(held(&mut budget), []);
        assert_eq!(budget, 0);
        drop(reading);
    }

    #[test]
    fn this_process_is_found() {
        let own = stat(Pid::this()).expect("own stat");
        assert!(!own.is_dead && own.started > 0);
        assert!(all().contains(&Pid::this()));
        assert!(!command_line(Pid::this()).is_empty());
    }
}
