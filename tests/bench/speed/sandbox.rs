//! What a sandbox costs beyond its runtime: a command through the daemon against the bare runtime with a
//! bundle of the same kind. One finds a sandbox that waits for it; another comes right after it, when the next is
//! only just being started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Fallible;
use crate::client::{Connection, Request};
use crate::daemon::Mode;
use crate::report::{Goal, Row, Unit};
use crate::scratch::Scratch;
use crate::stats::{Pairs, median};

const RUNTIME: &str = "runsc";

/// Starts per round.
const STARTS: usize = 5;

/// The shortest pause that somebody makes who reads an answer before the next call: the sandbox for that is there
/// afterwards, and does not take processors from the floor.
const PAUSE: Duration = Duration::from_millis(700);

/// Measures it in all modes; nothing where there is no runtime.
pub fn measure(
    scratch: &Scratch,
    modes: impl Iterator<Item = Mode>,
    rounds: impl Iterator<Item = usize>,
    sink: &mut dyn FnMut(Row),
) -> Fallible<()> {
    let version = Command::new(RUNTIME)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !version.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: the sandbox, for there is no {RUNTIME}");
        return Ok(());
    }
    let bare = Bare::new(&scratch.directory("bare")?)?;
    let mut running = Vec::new();
    for mode in modes {
        let daemon = scratch.ruled(mode, "sandbox", None)?;
        let connection = daemon.connect()?;
        // It ends with its value.
        running.push((
            mode,
            daemon,
            connection,
            [Pairs::default(), Pairs::default()],
        ));
    }
    for _ in rounds {
        for (_, _, connection, pairs) in &mut running {
            untrusted(connection)?;
            let (mut floor, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..STARTS {
                sleep(PAUSE);
                floor.push(bare.run()?);
                first.push(untrusted(connection)?);
                second.push(untrusted(connection)?);
            }
            for (pairs, ours) in pairs.iter_mut().zip([first, second]) {
                pairs.push(median(&floor), median(&ours));
            }
        }
    }
    for (mode, _, _, pairs) in &running {
        let names = ["`true` after a pause", "another right after it"];
        for (name, pairs) in names.into_iter().zip(pairs) {
            let name = format!("sandbox, {name} against the bare runtime");
            let goal = Goal::at_most(1.15);
            sink(Row::ratio(&name, Some(*mode), Unit::Seconds, pairs, goal));
        }
    }
    Ok(())
}

/// One call that runs in the sandbox.
fn untrusted(connection: &mut Connection) -> Fallible<f64> {
    let call = json!({"name": "bash", "risk_level": "untrusted", "input": {"command": "true"}});
    let request = Request::of(&call);
    let start = Instant::now();
    let answer = connection.exchange(&request)?.expect(200)?;
    let seconds = start.elapsed().as_secs_f64();
    let answer: Value = serde_json::from_slice(answer.body)?;
    if answer["exit_code"] != 0 || answer["sandbox"]["runtime"] != RUNTIME {
        return Err(format!("it did not run in the sandbox: {answer}").into());
    }
    Ok(seconds)
}

/// The runtime by itself.
struct Bare {
    bundle: PathBuf,
}

impl Bare {
    fn new(bundle: &Path) -> Fallible<Self> {
        let private = |dir: &str| json!({"destination": dir, "type": "tmpfs", "source": "tmpfs"});
        let namespaces = ["pid", "ipc", "uts", "mount", "network"];
        let spec = json!({
            "ociVersion": "1.0.2",
            "process": {
                "args": ["/bin/bash", "-c", "true"], "cwd": "/tmp", "env": ["PATH=/usr/bin:/bin"],
                "user": {"uid": 65534, "gid": 65534}, "noNewPrivileges": true,
            },
            "root": {"path": "/", "readonly": true},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                private("/dev"), private("/tmp"), private("/run"), private("/root"), private("/home"),
            ],
            "linux": {"namespaces": namespaces.map(|kind| json!({"type": kind}))},
        });
        fs::write(bundle.join("config.json"), spec.to_string())?;
        Ok(Self {
            bundle: bundle.to_owned(),
        })
    }

    fn run(&self) -> Fallible<f64> {
        let start = Instant::now();
        // Pipes, for it gives what it finds open to the user inside: `/dev/null`, or a terminal, would be his afterwards.
        let output = Command::new(RUNTIME)
            .arg("--root")
            .arg(self.bundle.join("state"))
            .args(["--ignore-cgroups", "--network=none", "run", "--bundle"])
            .arg(&self.bundle)
            .arg(format!("bare-{}", std::process::id()))
            .stdin(Stdio::piped())
            .output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{RUNTIME} ended with {}: {said}", output.status).into());
        }
        Ok(start.elapsed().as_secs_f64())
    }
}
