//! Processes that keep whoever reads their environment waiting, and would hold up whoever has to know whose they are.

use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::{Daemon, Mode, Process, python_with, skip, wait_for};

/// Puts memory that is yet to come (userfaultfd(2)) in the place of a page of its own environment, and stays.
const SILENT: &str = r#"
import ctypes, fcntl, os, platform, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
userfaultfd = libc.syscall({"x86_64": 323, "aarch64": 282}[platform.machine()], 0)
if userfaultfd < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
fcntl.ioctl(userfaultfd, 0xC018AA3F, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
start, end = map(int, open("/proc/self/stat").read().rsplit(")", 1)[1].split()[47:49])
size = os.sysconf("SC_PAGE_SIZE")
page = (start + size - 1) // size * size
assert page + size <= end, "the environment is too small"
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
assert libc.mmap(page, size, 3, 0x32, -1, 0) == page
fcntl.ioctl(userfaultfd, 0xC020AA00, bytearray(struct.pack("QQQQ", page, size, 1, 0)))
open(sys.argv[1], "w").write(str(os.getpid()))
signal.pause()
"#;

/// A command that leaves such a process behind, whose pid is in the file `silent` in the daemon's directory by then;
/// `None` where there can be none.
fn leaving_one(daemon: &Daemon) -> Option<String> {
    let script = daemon.dir().join("silent.py");
    std::fs::write(&script, SILENT).expect("written");
    let (script, pid) = (script.display(), daemon.dir().join("silent"));
    let pid = pid.display();
    let command = format!(
        "X=$(head -c 120000 /dev/zero | tr '\\0' x) Y=$X setsid python3 {script} {pid}.new >/dev/null 2>&1 &\n\
         until [ -s {pid}.new ]; do kill -0 $! || exit 9; sleep 0.01; done; mv {pid}.new {pid}"
    );
    let can = python_with("ctypes").is_some()
        && nix::unistd::geteuid().is_root()
        && std::path::Path::new("/proc/sys/vm/unprivileged_userfaultfd").exists();
    if !can {
        skip(
            "processes that do not tell whose they are, which takes Python, root and userfaultfd(2)",
        );
    }
    can.then_some(command)
}

fn pid_of_the_silent(daemon: &Daemon) -> i32 {
    wait_for("it is there", || {
        let pid = std::fs::read_to_string(daemon.dir().join("silent")).ok()?;
        pid.parse().ok()
    })
}

#[test]
fn who_does_not_tell_whose_it_is_holds_up_nobody() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let Some(command) = leaving_one(&daemon) else {
            return;
        };
        // It may be this one's as well.
        let other = daemon.begin("sleep 600", &json!({}));
        let reply = thread::scope(|scope| {
            let calling = scope.spawn(|| daemon.bash(&command));
            pid_of_the_silent(&daemon);
            while !calling.is_finished() {
                assert_eq!(daemon.get("/health").status, 200, "{mode:?}");
            }
            calling.join().expect("answered")
        });
        assert_eq!(reply.status, 200, "{mode:?}: {}", reply.content());
        assert_eq!(daemon.bash("echo hi").stdout(), "hi", "{mode:?}");
        let cancelled =
            daemon
                .connect()
                .request("DELETE", &format!("/executions/{other}"), &[], b"");
        assert!(cancelled.status < 300, "{}", cancelled.content());
        assert_eq!(daemon.ended(&other)["status"], "cancelled", "{mode:?}");
        // Of nobody who is still there.
        let silent = pid_of_the_silent(&daemon);
        daemon.wait_until("it is killed", || !Process::lives(silent));
    }
}

#[test]
fn who_does_not_tell_whose_it_is_does_not_hold_up_the_next_daemon() {
    let mut daemon = Daemon::start_with(Mode::Group, "");
    let Some(command) = leaving_one(&daemon) else {
        return;
    };
    daemon.begin(&format!("{command}; sleep 600"), &json!({}));
    let silent = pid_of_the_silent(&daemon);
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let next = daemon.restart();
    assert_eq!(next.bash("echo hi").stdout(), "hi");
    if Process::lives(silent) {
        // It may be anybody's.
        assert!(
            next.log().contains("do not tell whose they are"),
            "{}",
            next.log()
        );
        kill(Pid::from_raw(silent), Signal::SIGKILL).expect("ours");
    }
}
