//! Programs that would like to ask a human something: all end by themselves.

use std::time::Duration;

use serde_json::json;

use super::NOBODY;
use crate::support::{Daemon, Mode, skip, timed};

/// A package that cannot be installed without another one is what makes apt-get ask. Its whole
/// world is in a directory, and dpkg is a program that fails, should it not ask after all.
const APT: &str = r#"set -e
mkdir -p apt/repo apt/lists/partial apt/cache/archives/partial
for name in shelly-test-a shelly-test-b; do
  printf 'Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nFilename: ./x.deb\nSize: 1\nSHA256: %064d\n' $name 0
  if [ $name = shelly-test-a ]; then echo 'Depends: shelly-test-b'; fi
  echo
done >apt/repo/Packages
echo "deb [trusted=yes] file:$PWD/apt/repo ./" >apt/sources
: >apt/status
apt() { apt-get -qq -o Dir::Etc::SourceList=$PWD/apt/sources -o Dir::Etc::SourceParts=- -o Dir::State=$PWD/apt \
  -o Dir::State::status=$PWD/apt/status -o Dir::State::Lists=$PWD/apt/lists -o Dir::Cache=$PWD/apt/cache \
  -o Dir::Bin::dpkg=/bin/false -o APT::Sandbox::User=root -o Debug::NoLocking=true "$@"; }
apt update
apt -o quiet=0 install shelly-test-a
"#;

#[test]
fn whoever_asks_gets_no_answer_and_ends() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let dir = daemon.dir().join("work");
        std::fs::create_dir(&dir).expect("a directory");
        for (program, command, code, says) in [
            ("cat", "cat", 0, "[exit_code]\n0"),
            ("bash", "read x; echo \"$? <$x>\"", 0, "1 <>"),
            ("bash", "select x in a b; do :; done", 1, "1) a"),
            ("python3", "python3 -c 'input()'", 1, "EOFError"),
            (
                "git",
                "git init -q . && touch f && git add f && git -c user.name=x -c user.email=x@example.org commit",
                1,
                "erminal is dumb",
            ),
            // It would ask for a name and a password.
            (
                "git",
                "git clone -q https://localhost:1/x y",
                128,
                "fatal: ",
            ),
            ("apt-get", APT, 1, "Do you want to continue? [Y/n] Abort."),
            (
                "less",
                "seq 100000 >numbers; less numbers | tail -n 1",
                0,
                "100000",
            ),
        ] {
            if daemon.bash(&format!("command -v {program}")).json()["exit_code"] != 0 {
                skip(&format!(
                    "`{program}` without a human, for it is not installed"
                ));
                continue;
            }
            let members = json!({"working_dir": dir, "timeout_secs": 60});
            let reply = daemon.bash_with(command, &members);
            let content = reply.content();
            assert_eq!(reply.status, 200, "{mode:?} {command}: {content}");
            assert_eq!(
                reply.json()["exit_code"],
                code,
                "{mode:?} {command}: {content}"
            );
            assert!(content.contains(says), "{mode:?} {command}: {content}");
            assert_eq!(reply.json()["background"], json!([]), "{mode:?} {command}");
        }
        without_password(&daemon, mode);
    }
}

/// With nothing on standard input vim reads standard error instead (`fill_input_buf` in its ui.c),
/// and waits for a pipe's writing end to become readable: that never happens, nobody else's doing
/// ends it, and so the time limit does.
#[test]
fn an_editor_ends_at_the_time_limit_at_the_latest() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        if daemon.bash("command -v vi").json()["exit_code"] != 0 {
            skip("`vi` without a human, for it is not installed");
            return;
        }
        let members = json!({"working_dir": daemon.dir(), "timeout_secs": 3});
        let (reply, took) = timed(|| daemon.bash_with("vi file; :", &members));
        assert!(
            [200, 504].contains(&reply.status),
            "{mode:?}: {}",
            reply.content()
        );
        assert!(
            took.within(Duration::from_millis(3000 + 1000 + 300)),
            "{mode:?}: {took:?}"
        );
        assert_eq!(daemon.processes(), NOBODY, "{mode:?}");
    }
}

/// To root sudo asks nothing, so it is somebody else who has to be asked for a password.
fn without_password(daemon: &Daemon, mode: Mode) {
    if daemon.bash("command -v sudo").json()["exit_code"] != 0 {
        skip("`sudo` without a human, for it is not installed");
        return;
    }
    let command = match nix::unistd::geteuid().is_root() {
        true => "setpriv --reuid=65534 --regid=65534 --clear-groups sudo true",
        false => "sudo -k true",
    };
    let reply = daemon.bash_with(command, &json!({"timeout_secs": 60}));
    assert_eq!(reply.status, 200, "{mode:?}: {}", reply.content());
    assert_eq!(
        reply.json()["exit_code"],
        1,
        "{mode:?}: {}",
        reply.content()
    );
}

#[test]
fn what_is_given_on_standard_input_is_there_as_a_whole() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let long = "0123456789abcdef".repeat(300_000);
        for (command, stdin, expected) in [
            ("cat", "hello", "hello".to_owned()),
            (
                "read x; echo \"<$x>\"; cat",
                "a\nb\nc",
                "<a>\nb\nc".to_owned(),
            ),
            ("wc -c", long.as_str(), long.len().to_string()),
            // Nobody has to read it.
            ("echo no", long.as_str(), "no".to_owned()),
        ] {
            let reply = daemon.bash_with(command, &json!({"stdin": stdin}));
            assert_eq!(reply.stdout(), expected, "{mode:?} {command}");
            assert_eq!(reply.json()["exit_code"], 0, "{mode:?} {command}");
        }
    }
}
