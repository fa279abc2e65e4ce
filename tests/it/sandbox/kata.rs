//! Kata Containers, with stand-ins for it: what it does otherwise than other runtimes.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::json;

use super::runtime::{root_with, runtime_of};
use super::{assert_clean, is_there, start, wait_for_test};
use crate::support::{Daemon, Mode, skip};

/// Kata keeps what it knows of its containers where it wants to, and lets no socket in. gVisor does its
/// work here.
#[test]
fn what_is_particular_to_kata_is_known() {
    if !is_there() {
        return;
    }
    const PROGRAM: &str = "#!/bin/sh
[ \"$1\" = --version ] && { echo 'kata-runtime  : 1.13.0'; exit; }
shift 2
exec runsc --root \"${0%/*}/elsewhere\" --ignore-cgroups --network=none \"$@\"
";
    let (dir, _) = runtime_of(PROGRAM);
    let (kata, elsewhere) = (dir.join("kata-runtime"), dir.join("elsewhere"));
    fs::rename(dir.join("runtime"), &kata).expect("renamed");
    let root = root_with(&["/bin/bash", "/bin/sleep"]);
    let left = || -> Vec<_> {
        let entries = fs::read_dir(&elsewhere).expect("made by the runtime");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names.collect()
    };
    let toml = format!("[sandbox]\nruntime = {kata:?}\nready = 0\n");
    let rooted = format!("{toml}rootfs = {root:?}\n");
    let mut daemon = start(Mode::Group, &rooted);
    assert_eq!(daemon.bash("exit 3").json()["exit_code"], 3);
    let id = daemon.begin("echo up; sleep 60", &json!({}));
    daemon.wait_until("it runs", || daemon.output(&id, "stdout") == b"up\n");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    assert!(!left().is_empty());
    daemon = daemon.restart();
    wait_for_test(&daemon, "passed");
    assert!(left().is_empty(), "{:?}", left());
    assert_clean(&daemon, "after the daemon was killed");
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    for (toml, expected) in [
        (toml.clone(), "the host's own `/`"),
        (
            format!("{rooted}egress = {{ bash = [\"localhost:443\"] }}\n"),
            "lets no socket into",
        ),
    ] {
        let toml = format!("{toml}\n[tools]\nuntrusted = [\"bash\"]\n");
        let daemon = Daemon::start_with(Mode::Group, &toml);
        let body = daemon.bash("true").json();
        assert_eq!(body["code"], "sandbox_unavailable", "{body}");
        let detail = body["detail"].as_str().expect("text");
        assert!(detail.contains(expected), "{detail}");
    }
    fs::remove_dir_all(root).expect("ours");
    fs::remove_dir_all(dir).expect("ours");
}

/// Until it has started a container, Kata does not know how to delete it.
#[test]
fn what_kata_leaves_of_a_start_that_was_cut_short_is_removed() {
    const PLACES: [&str; 3] = [
        "/run/vc/sbs",
        "/run/vc/vm",
        "/run/kata-containers/shared/sandboxes",
    ];
    const PROGRAM: &str = "#!/bin/sh
[ \"$1\" = --version ] && { echo 'kata-runtime  : 1.13.0'; exit; }
[ \"$3\" = run ] || exit 0
for id; do :; done
shared=/run/kata-containers/shared/sandboxes/$id
mkdir -p /run/vc/sbs/$id /run/vc/vm/$id \"$shared/mounts/a b\" $shared/shared
: > /run/vc/vm/$id/pid
mount --bind \"${0%/*}/root\" \"$shared/mounts/a b\"
mount --rbind $shared/mounts $shared/shared
echo $id >> \"${0%/*}/started\"
sleep 60113 & wait
";
    if !nix::unistd::geteuid().is_root() {
        skip("what Kata leaves, for only root can mount");
        return;
    }
    for mode in Mode::all() {
        let (dir, _) = runtime_of(PROGRAM);
        let (kata, root) = (dir.join("kata-runtime"), dir.join("root"));
        fs::rename(dir.join("runtime"), &kata).expect("renamed");
        fs::create_dir(&root).expect("made");
        fs::write(root.join("precious"), "the operator's").expect("written");
        let toml = format!(
            "shutdown_grace_secs = 1\n\n[sandbox]\nruntime = {kata:?}\nrootfs = {root:?}\nready = 0\n"
        );
        let started = || fs::read_to_string(dir.join("started")).unwrap_or_default();
        let left = |of: &str| -> Vec<PathBuf> {
            let dirs = |id| PLACES.map(|place| Path::new(place).join(id));
            let all = of.lines().flat_map(dirs);
            all.filter(|dir| dir.exists()).collect()
        };
        let mut daemon = Daemon::start_with(mode, &toml);
        for signal in [Signal::SIGKILL, Signal::SIGTERM] {
            let before = started();
            daemon.begin("true", &json!({"risk_level": "untrusted"}));
            daemon.wait_until("it is being started", || started() != before);
            assert!(!left(&started()).is_empty(), "{mode:?}");
            daemon.signal(signal);
            daemon.wait();
            // The next daemon tests its sandbox, which starts one more.
            let before = started();
            if signal == Signal::SIGKILL {
                daemon = daemon.restart();
            }
            assert_eq!(left(&before), Vec::<PathBuf>::new(), "{mode:?} {signal}");
        }
        assert!(root.join("precious").exists(), "{mode:?}");
        fs::remove_dir_all(dir).expect("ours");
    }
}
