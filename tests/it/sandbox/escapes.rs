//! Attempts to get out. Each fails inside, and harms nothing outside.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;

use super::{assert_clean, give_to_nobody, is_there, modes, start, workspace};
use crate::support::{Daemon, Mode};

/// Runs what has to fail, and says what it wrote.
#[track_caller]
fn fails(daemon: &Daemon, command: &str) -> String {
    let body = daemon.bash(command).json();
    assert_eq!(body["is_error"], true, "{command}: {body}");
    assert_eq!(body["sandbox"]["runtime"], "runsc", "{command}: {body}");
    body["content"].as_str().expect("text").to_owned()
}

#[test]
fn nothing_is_written_outside() {
    for mode in modes() {
        let daemon = start(mode, "");
        // What is in /tmp outside is not there inside, where anything can be.
        let witness = daemon.dir().join("witness");
        fs::write(&witness, "before").expect("written");
        give_to_nobody(&witness);
        let there = witness.display();
        let reply = daemon.bash(&format!("cat {there}; echo x > {there}"));
        assert_eq!(reply.status, 200);
        let kept = fs::read_to_string(&witness).expect("there");
        assert_eq!(kept, "before", "{mode:?}");
        // What is elsewhere is there, and cannot be written to, whoever it belongs to.
        let witness = format!("/opt/shelly-it-{}", std::process::id());
        fs::create_dir_all("/opt").expect("made");
        fs::write(&witness, "before").expect("written");
        give_to_nobody(witness.as_ref());
        let said = fails(&daemon, &format!("cat {witness}; echo after > {witness}"));
        let kept = fs::read_to_string(&witness).expect("there");
        fs::remove_file(&witness).expect("removed");
        assert!(
            kept == "before" && said.contains("before"),
            "{mode:?}: {said}"
        );
        for dir in [
            "/", "/etc", "/usr/bin", "/var/lib", "/sys", "/proc", "/root", "/home",
        ] {
            fails(&daemon, &format!("touch {dir}/shelly-witness"));
            assert!(
                !std::path::Path::new(dir).join("shelly-witness").exists(),
                "{dir}"
            );
        }
        // What is private is there for one execution only.
        assert_eq!(
            daemon.bash("echo x > /tmp/mine; cat /tmp/mine").stdout(),
            "x"
        );
        fails(&daemon, "cat /tmp/mine");
        assert!(!std::path::Path::new("/tmp/mine").exists());
        assert_clean(&daemon, "after writing");
    }
}

#[test]
fn neither_the_daemon_nor_its_neighbours_are_seen() {
    for mode in modes() {
        let daemon = start(mode, "");
        let secret = daemon.dir().join("secret");
        fs::write(&secret, "s3cret").expect("written");
        let socket = daemon.socket().display().to_string();
        fails(&daemon, &format!("cat {}", secret.display()));
        fails(&daemon, "cat /etc/shadow");
        fails(&daemon, "ls /root/.ssh || ls /root/.bashrc");
        fails(&daemon, &format!("test -e {socket}"));
        fails(
            &daemon,
            &format!("curl --max-time 2 --unix-socket {socket} http://x/health"),
        );
        fails(&daemon, "kill -0 -1");
        let pids = daemon.bash("cd /proc; echo [0-9]*").stdout();
        assert!(pids.split(' ').count() <= 4, "{mode:?}: {pids}");
        fails(&daemon, &format!("test -d /proc/{}", daemon.pid()));
        let state = daemon.bash(&format!("ls {}", daemon.dir().join("state").display()));
        assert_eq!(
            state.json()["is_error"],
            true,
            "{mode:?}: {}",
            state.content()
        );
    }
}

#[test]
fn there_are_no_privileges_to_be_had() {
    for mode in modes() {
        let daemon = start(mode, "");
        let status = daemon
            .bash("grep -E '^(Cap|NoNewPrivs|Uid)' /proc/self/status")
            .stdout();
        for line in status.lines() {
            let (name, value) = line.split_once(":\t").expect("a field");
            match name {
                "Uid" => assert!(value.starts_with("65534"), "{mode:?}: {status}"),
                "NoNewPrivs" => assert_eq!(value, "1", "{mode:?}: {status}"),
                _ => assert_eq!(value, "0000000000000000", "{mode:?}: {status}"),
            }
        }
        for command in [
            "mount -t tmpfs tmpfs /tmp",
            "mount --bind /tmp /usr",
            "umount /tmp",
            "chroot /tmp true",
            "mknod /tmp/sda b 8 0 && head -c 1 /tmp/sda",
            "chown root /tmp",
            "hostname other",
            "su -c true",
            "nsenter -t 1 -a true",
            "python3 -c 'import ctypes; c = ctypes.CDLL(None, use_errno=True); exit(c.syscall(175, 0, 0, 0) != 0)'",
            "python3 -c 'import ctypes; exit(ctypes.CDLL(None).reboot(0x01234567) != 0)'",
            "python3 -c 'import ctypes; exit(ctypes.CDLL(None).setuid(0) != 0)'",
        ] {
            fails(&daemon, command);
        }
        assert_clean(&daemon, "after privileges");
    }
}

/// What ran may lie about itself, but not have it said that it did not run: it would be run again.
#[test]
fn what_has_run_is_not_said_not_to_have() {
    for mode in modes() {
        let daemon = start(
            mode,
            "[sandbox]\nfile_size_max = 4194304\nworkspaces = [\"/tmp\"]",
        );
        let members = json!({"workspace": workspace(&daemon)});
        let report = daemon.dir().join("state/report");
        for (what, exit) in [
            (format!("truncate -s 4194304 {}", report.display()), 3),
            (format!(": > {}", report.display()), 3),
            (
                format!("rm -f {}; echo > {}", report.display(), report.display()),
                3,
            ),
        ] {
            let body = daemon
                .bash_with(&format!("{what}; exit {exit}"), &members)
                .json();
            assert_eq!(body["exit_code"], exit, "{mode:?} {what}: {body}");
        }
        // Killed before it can tell.
        let script = format!("sleep 0.1; : > {}; kill -9 1", report.display());
        let body = daemon.bash_with(&script, &members).json();
        assert_ne!(body["code"], "sandbox_unavailable", "{mode:?}: {body}");
        assert_clean(&daemon, "after lies");
    }
}

#[test]
fn disk_and_memory_have_an_end() {
    for mode in modes() {
        let toml = "[sandbox]\ntmp_max = 8388608\nfile_size_max = 4194304\nmemory_max = 134217728\nworkspaces = [\"/tmp\"]";
        let daemon = start(mode, toml);
        let said = fails(
            &daemon,
            "for i in 1 2 3 4; do head -c 4194304 /dev/zero > /tmp/$i || exit 1; done",
        );
        assert!(said.contains("No space left"), "{mode:?}: {said}");
        let dir = workspace(&daemon);
        let members = json!({"workspace": dir});
        let body = daemon
            .bash_with(
                "trap '' XFSZ; head -c 5242880 /dev/zero > big; echo $?",
                &members,
            )
            .json();
        assert_eq!(body["is_error"], false, "{body}");
        assert!(
            fs::metadata(dir.join("big")).expect("there").len() <= 4 << 20,
            "{mode:?}"
        );
        let body = daemon
            .bash_with("tail /dev/zero", &json!({"timeout_secs": 20}))
            .json();
        assert_eq!(body["is_error"], true, "{mode:?}: {body}");
        assert_ne!(body["code"], "timeout", "{mode:?}: {body}");
        assert_clean(&daemon, "after limits");
    }
}

#[test]
fn a_workspace_is_that_directory_and_nothing_else() {
    for mode in modes() {
        let daemon = start(mode, "[sandbox]\nworkspaces = [\"/tmp\"]");
        let dir = workspace(&daemon);
        let outside = daemon.dir().join("outside");
        fs::write(&outside, "outside").expect("written");
        give_to_nobody(&outside);
        let members = json!({"workspace": dir});
        let reply = daemon.bash_with("pwd; echo inside > file; cat file", &members);
        assert_eq!(
            reply.stdout(),
            format!("{}\ninside", dir.display()),
            "{mode:?}: {}",
            reply.content()
        );
        assert_eq!(
            fs::read_to_string(dir.join("file")).expect("there"),
            "inside\n"
        );
        // A link leads where it leads inside, not outside.
        symlink(&outside, dir.join("link")).expect("linked");
        let body = daemon.bash_with("cat link", &members).json();
        assert_eq!(body["is_error"], true, "{mode:?}: {body}");
        let body = daemon
            .bash_with("ln -s ../outside own; echo x > own; cat own", &members)
            .json();
        // What is beside the workspace is private like all of /tmp, and gone.
        assert_eq!(
            body["content"], "[stdout]\nx\n\n[exit_code]\n0",
            "{mode:?}: {body}"
        );
        assert_eq!(
            fs::read_to_string(&outside).expect("there"),
            "outside",
            "{mode:?}"
        );
        // Nor can the workspace itself be one that leads away, or one that nobody allowed.
        // Below one of theirs they could put a link in its place.
        symlink("/etc", daemon.dir().join("away")).expect("linked");
        fs::create_dir(dir.join("below")).expect("made");
        // Nor below one that everybody may write to, or their group.
        let open = |name: &str, mode: u32| {
            let open = daemon.dir().join(name);
            fs::create_dir_all(open.join("below")).expect("made");
            std::os::unix::fs::chown(&open, None, Some(65_534)).expect("root may");
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).expect("ours");
            open.join("below")
        };
        for wanted in [
            open("everybody", 0o707),
            open("group", 0o770),
            daemon.dir().join("away"),
            dir.join("below"),
            "/etc".into(),
            "/tmp/../etc".into(),
        ] {
            let reply = daemon.bash_with("true", &json!({"workspace": wanted}));
            let body = reply.json();
            assert_eq!(
                (reply.status, &body["code"]),
                (422, &json!("invalid_input")),
                "{body}"
            );
        }
        assert_clean(&daemon, "after workspaces");
    }
}

#[test]
fn what_is_hidden_by_a_link_is_hidden_where_it_is() {
    if !is_there() {
        return;
    }
    let (real, link) = (
        format!("/opt/shelly-it-{}-real", std::process::id()),
        format!("/opt/shelly-it-{}-link", std::process::id()),
    );
    fs::create_dir_all(&real).expect("made");
    fs::write(format!("{real}/secret"), "s3cret").expect("written");
    let _ = fs::remove_file(&link);
    symlink(&real, &link).expect("linked");
    let daemon = start(Mode::Group, &format!("[sandbox]\nhidden = [{link:?}]"));
    let body = daemon
        .bash(&format!(
            "cat {real}/secret; cat {link}/secret; ls -d {real}"
        ))
        .json();
    fs::remove_file(&link).expect("ours");
    fs::remove_dir_all(&real).expect("ours");
    assert!(!body.to_string().contains("s3cret"), "{body}");
    assert_eq!(body["sandbox"]["runtime"], "runsc", "{body}");
}

/// The first process inside tells how a command ended in a file that the command can write to.
#[test]
fn what_lies_about_itself_has_run_all_the_same() {
    for mode in modes() {
        let daemon = start(mode, "");
        let report = daemon.dir().join("state/report");
        let report = report.display();
        let failed = r#"{"failed":{"step":"cannot do it","errno":2}}"#;
        let ended = r#"{"ended":{"exit":{"signal":-2147483648},"left":[]}}"#;
        for (lie, code) in [
            (
                format!("truncate -s 0 {report}; truncate -s 2M {report}; exit 3"),
                3,
            ),
            (format!("chmod 0 {report}; exit 4"), 4),
            (format!("echo '{ended}' >> {report}; exit 5"), 5),
            (format!("echo '{failed}' > {report}; exit 125"), 125),
            (
                format!("for i in 1 2 3 4; do yes >> {report} 2>&1 & done; sleep 0.1; exit 6"),
                6,
            ),
        ] {
            let reply = daemon.bash(&lie);
            let body = reply.json();
            assert_eq!(
                (reply.status, &body["exit_code"]),
                (200, &json!(code)),
                "{lie}: {body}"
            );
        }
        let lie = format!("echo hi; echo '{failed}' > {report}; kill -9 1; sleep 60");
        let reply = daemon.bash(&lie);
        let body = reply.json();
        assert_eq!(reply.status, 200, "{body}");
        assert_eq!(body["signal"]["name"], "SIGKILL", "{body}");
        assert!(reply.content().contains("hi"), "{body}");
        assert_clean(&daemon, "after lies");
    }
}

#[test]
fn there_is_no_network() {
    for mode in modes() {
        let daemon = start(mode, "");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        listener.set_nonblocking(true).expect("set");
        fails(&daemon, &format!("exec 3<>/dev/tcp/127.0.0.1/{port}"));
        fails(&daemon, "exec 3<>/dev/tcp/192.0.2.1/80");
        fails(&daemon, "exec 3<>/dev/udp/192.0.2.1/53 && echo x >&3");
        assert!(
            listener.accept().is_err(),
            "{mode:?}: somebody came through"
        );
    }
}

/// Only directories can be hidden. Whoever names a file means it all the same.
#[test]
fn a_file_that_is_to_be_hidden_is_not_shown() {
    if !is_there() {
        return;
    }
    let toml =
        "[tools]\nuntrusted = [\"bash\"]\n[sandbox]\nhidden = [\"/etc/hostname\", \"/root\"]\n";
    let daemon = Daemon::start_with(Mode::Group, toml);
    let reply = daemon.bash("cat /etc/hostname");
    let body = reply.json();
    assert_eq!(body["code"], "sandbox_unavailable", "{body}");
    assert!(
        reply.content().contains("`hidden` names /etc/hostname"),
        "{body}"
    );
}
