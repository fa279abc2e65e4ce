use std::fs;

use serde_json::json;

use super::{Daemon, wait_to_equal, wait_until};

/// One process as `/proc/PID/stat` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub state: char,
    pub parent: i32,
}

/// What a daemon has open while nothing runs; see [`Daemon::wait_clean`].
#[derive(Clone, Debug)]
pub struct Baseline(Vec<String>);

impl Process {
    /// The process of that id; `None` when there is none.
    pub fn find(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name, in parentheses, may itself hold blanks and parentheses.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        Some(Self {
            pid,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
        })
    }

    /// Whether `pid` is there and no zombie.
    pub fn lives(pid: i32) -> bool {
        Self::find(pid).is_some_and(|process| process.state != 'Z')
    }

    fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").expect("/proc");
        let pids = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Self::find).collect()
    }
}

impl Daemon {
    /// The daemon's children, zombies among them.
    pub fn children(&self) -> Vec<Process> {
        let own = self.pid().as_raw();
        Process::all()
            .into_iter()
            .filter(|process| process.parent == own)
            .collect()
    }

    /// What is open in the daemon, by name (`socket:[…]`, `pipe:[…]`, a path), sorted.
    pub fn descriptors(&self) -> Vec<String> {
        let entries = fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("the daemon lives");
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .map(|target| target.display().to_string())
            .collect();
        names.sort();
        names
    }

    /// A line of the daemon's `/proc/PID/status` in bytes, such as `VmRSS`.
    pub fn memory(&self, field: &str) -> u64 {
        self.status(field) * 1024
    }

    /// The number in a line of the daemon's `/proc/PID/status`.
    pub fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the daemon lives");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        number.unwrap_or_else(|| panic!("no {field} in {status}"))
    }

    /// Has `VmHWM` begin anew from what is resident now, which is returned.
    pub fn reset_peak(&self) -> u64 {
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").expect("own process");
        self.memory("VmRSS")
    }

    /// What the daemon has open while nothing runs. It runs a command first: some of it is opened
    /// at the first one.
    pub fn baseline(&self) -> Baseline {
        assert_eq!(self.bash("true").status, 200);
        Baseline(self.descriptors())
    }

    /// Waits until nothing that executions made is left: no process, zombie, cgroup, running
    /// record or descriptor.
    #[track_caller]
    pub fn wait_clean(&self, baseline: &Baseline) {
        wait_to_equal("processes left", vec![], || self.processes());
        wait_to_equal("children of the daemon", vec![], || self.children());
        // The daemon may have one ready for the next execution.
        wait_until("no cgroup is left but a spare one", || {
            self.leaves().len() <= 1
        });
        wait_to_equal("running executions", json!(0), || {
            self.get("/health").json()["running"].clone()
        });
        wait_to_equal("descriptors opened since", vec![], || {
            let mut since = self.descriptors();
            // The ledger's readers stay.
            since.retain(|name| !name.contains("/ledger.db"));
            for before in &baseline.0 {
                if let Some(at) = since.iter().position(|name| name == before) {
                    since.remove(at);
                }
            }
            since
        });
    }
}
