//! `shellyctl tools` on directories of tools: made, checked, installed, called, removed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{code, shellyctl, text};
use crate::support::{Daemon, scratch, skip};

/// A directory to work in, which goes at the end.
struct Desk(PathBuf);

impl Desk {
    fn new() -> Self {
        Self(scratch())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn tools(&self, args: &[&str]) -> Output {
        let mut command = shellyctl(Path::new("/nonexistent"), &["tools"]);
        command.args(args).current_dir(&self.0);
        command.output().expect("shellyctl starts")
    }

    #[track_caller]
    fn done(&self, args: &[&str]) -> String {
        let output = self.tools(args);
        assert_eq!(code(&output), 0, "{output:?}");
        text(&output.stdout).to_owned()
    }

    /// What is said of something that is not done.
    #[track_caller]
    fn refused(&self, args: &[&str]) -> String {
        let output = self.tools(args);
        assert_eq!(code(&output), 1, "{output:?}");
        text(&output.stderr).to_owned()
    }

    /// Makes a skill in shell.
    fn make(&self, name: &str) -> PathBuf {
        self.done(&["new", name, "--lang", "sh"]);
        self.path(name)
    }

    fn install(&self, dir: &str) -> Output {
        self.tools(&["install", dir, "--skills-dir", "skills"])
    }

    fn installed(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("skills")).into_iter().flatten();
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().into_string().expect("UTF-8"))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn start() -> Daemon {
    let dir = scratch();
    fs::write(dir.join("executor.toml"), "[cgroup]\nmode = \"group\"\n").expect("written");
    Daemon::launch(dir, None, |_| {})
}

fn set_version(dir: &Path, version: &str) {
    let file = dir.join("skill.json");
    let text = fs::read_to_string(&file).expect("there");
    let mut manifest: Value = serde_json::from_str(&text).expect("JSON");
    manifest["version"] = json!(version);
    fs::write(&file, manifest.to_string()).expect("written");
}

#[test]
fn what_could_not_be_installed_is_told_at_once() {
    let desk = Desk::new();
    let taken = desk.refused(&["new", "bash", "--lang", "python"]);
    assert!(
        taken.contains("\"bash\" is a tool that is built in"),
        "{taken}"
    );
    assert!(!desk.path("bash").exists());
    desk.make("greet");
    let nowhere = desk.refused(&["install", "greet", "--skills-dir", "not/there"]);
    assert!(
        nowhere.contains("not/there`") && nowhere.contains("hint: ") && nowhere.contains("as root"),
        "{nowhere}"
    );
}

#[test]
fn a_new_skill_works_in_every_language() {
    let (desk, daemon) = (Desk::new(), start());
    let skills = daemon.dir().join("skills");
    let skills = skills.to_str().expect("UTF-8");
    let has_make = Command::new("make").arg("--version").output().is_ok();
    for lang in ["sh", "python", "rust"] {
        if lang == "rust" && !has_make {
            skip("a new skill in Rust, for there is no make");
            continue;
        }
        let name = format!("greet-in_{lang}");
        let said = desk.done(&["new", &name, "--lang", lang]);
        assert!(said.contains("shellyctl tools install"), "{said}");
        let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
        let rustc = if rustc.exists() {
            rustc
        } else {
            "rustc".into()
        };
        let test = Command::new(desk.path(&name).join("test"))
            .env("RUSTC", rustc)
            .output()
            .expect("it starts");
        assert!(test.status.success(), "{test:?}");
        assert_eq!(desk.done(&["check", &name]), "ok\n");
        let said = desk.done(&["install", &name, "--skills-dir", skills]);
        assert!(
            said.starts_with(&format!("installed {name} 0.1.0 in ")),
            "{said}"
        );
        let call = |input: Value| daemon.post(&json!({"name": name, "input": input}));
        daemon.wait_until("it is there", || call(json!({})).status == 200);
        for (input, greeting) in [
            (json!({}), "Hello, World!"),
            (
                json!({"name": "Ada \"\\\n\u{1}é😀"}),
                "Hello, Ada \"\\\n\u{1}é😀!",
            ),
        ] {
            let answer = call(input).json();
            assert_eq!(answer["output"], json!({"greeting": greeting}), "{answer}");
        }
        assert_eq!(call(json!({"name": 1})).status, 422);
        desk.done(&["remove", &format!("./{name}"), "--skills-dir", skills]);
        daemon.wait_until("it is gone", || call(json!({})).status == 404);
    }
    assert_eq!(fs::read_dir(skills).expect("there").count(), 0);
    assert_eq!(daemon.get("/health").json()["status"], "ok");
}

#[test]
fn new_leaves_alone_what_is_there() {
    let desk = Desk::new();
    fs::create_dir(desk.path("mine")).expect("made");
    let said = desk.refused(&["new", "mine", "--lang", "sh"]);
    assert!(said.contains("`./mine` is there already"), "{said}");
    assert_eq!(fs::read_dir(desk.path("mine")).expect("there").count(), 0);
    for name in ["a/b", "..", "a b", ""] {
        let said = desk.refused(&["new", name, "--lang", "sh"]);
        assert!(said.contains("no name of a skill"), "{said}");
    }
    desk.done(&["new", "other", "--lang", "python", "--dir", "mine"]);
    assert!(desk.path("mine/other/skill.json").exists());
}

#[test]
fn a_copy_is_what_it_is_a_copy_of() {
    let desk = Desk::new();
    let dir = desk.make("a");
    fs::create_dir_all(dir.join("data/__pycache__")).expect("made");
    fs::write(dir.join("data/one"), "1").expect("written");
    fs::write(dir.join("data/__pycache__/x"), "x").expect("written");
    symlink("data/one", dir.join("link")).expect("linked");
    for (name, mode) in [("data/one", 0o666), ("run", 0o4775), ("README.md", 0o640)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(dir.join(name), mode).expect("changed");
    }
    let output = desk.install("a");
    assert_eq!(code(&output), 0, "{output:?}");
    let made = desk.path("skills/a");
    let mode = |name: &str| {
        fs::metadata(made.join(name))
            .expect("there")
            .permissions()
            .mode()
            & 0o7777
    };
    // Nobody else may change what the daemon runs.
    assert_eq!(
        (mode("data/one"), mode("run"), mode("README.md")),
        (0o644, 0o755, 0o640)
    );
    assert_eq!(
        fs::read_link(made.join("link")).expect("a link"),
        Path::new("data/one")
    );
    assert_eq!(fs::read_to_string(made.join("link")).expect("there"), "1");
    assert!(!made.join("data/__pycache__").exists());
    assert_eq!(desk.installed(), ["a"]);
}

#[test]
fn what_would_lead_elsewhere_is_not_installed() {
    let desk = Desk::new();
    let dir = desk.make("a");
    fs::write(desk.path("secret"), "x").expect("written");
    let large = || {
        let file = fs::File::create(dir.join("large")).expect("made");
        file.set_len((64 << 20) + 1).expect("sparse");
    };
    let fifo = || {
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&dir.join("fifo"), mode).expect("made");
    };
    let cases: [(&str, &str, &dyn Fn()); 6] = [
        ("out", "leads out of the skill", &|| {
            symlink("../secret", dir.join("out")).expect("linked")
        }),
        ("absolute", "leads out of the skill", &|| {
            symlink("/etc/passwd", dir.join("absolute")).expect("linked")
        }),
        ("dangling", "leads nowhere", &|| {
            symlink("nothing", dir.join("dangling")).expect("linked")
        }),
        ("fifo", "is no file", &fifo),
        ("large", "64 MiB", &large),
        ("skill.json", "no JSON", &|| {
            fs::write(dir.join("skill.json"), "{").expect("written")
        }),
    ];
    for (name, part, spoil) in cases {
        spoil();
        let output = desk.install("a");
        assert_eq!(code(&output), 1, "{name}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(part), "{name}: {said}");
        // It names what is to be mended, not a copy of it.
        assert!(
            said.contains(&format!("{}/{name}", dir.display())),
            "{name}: {said}"
        );
        assert_eq!(desk.installed(), [""; 0], "{name}");
        fs::remove_file(dir.join(name)).expect("removed");
    }
    let said = desk.install("a").stderr;
    assert!(text(&said).contains("skill.json: is not there"), "{said:?}");
}

#[test]
fn one_takes_the_place_of_another_at_once() {
    let desk = Desk::new();
    let dir = desk.make("a");
    assert_eq!(code(&desk.install("a")), 0);
    let file = desk.path("skills/a/skill.json");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = 0;
            while !is_over.load(Ordering::Relaxed) {
                let text = fs::read_to_string(&file).expect("there all the while");
                let manifest: Value = serde_json::from_str(&text).expect("whole");
                assert_eq!(manifest["name"], "a");
                looks += 1;
            }
            looks
        });
        for n in 0..10 {
            set_version(&dir, &format!("1.0.{n}"));
            let output = desk.install("a");
            assert_eq!(code(&output), 0, "{output:?}");
            assert!(text(&output.stdout).contains(" in place of "), "{output:?}");
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(looks.join().expect("it was there") > 0);
    });
    // A skill that is not right leaves the one that is there.
    set_version(&dir, "one");
    let output = desk.tools(&["--json", "install", "a", "--skills-dir", "skills"]);
    assert_eq!(code(&output), 1, "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let path = dir.join("skill.json").display().to_string();
    assert_eq!(
        (&said["done"], &said["problems"][0]["path"]),
        (&json!(false), &json!(path))
    );
    assert!(fs::read_to_string(&file).expect("there").contains("1.0.9"));
    assert_eq!(desk.installed(), ["a"]);
}

#[test]
fn versions_stand_side_by_side_and_go_one_by_one() {
    let (desk, daemon) = (Desk::new(), start());
    let skills = daemon.dir().join("skills");
    let skills = skills.to_str().expect("UTF-8");
    desk.make("v");
    for version in ["1.0.0", "2.0.0"] {
        let dir = format!("v@{version}");
        fs::rename(desk.path("v"), desk.path(&dir)).expect("renamed");
        set_version(&desk.path(&dir), version);
        desk.done(&["install", &dir, "--skills-dir", skills]);
        fs::rename(desk.path(&dir), desk.path("v")).expect("renamed");
    }
    let show = |name: &str| {
        let output = super::run(&daemon, &["tools", name]);
        (code(&output), text(&output.stdout).to_owned())
    };
    daemon.wait_until("both are there", || {
        show("v@1.0.0").0 == 0 && show("v@2.0.0").0 == 0
    });
    let (_, shown) = show("v@1.0.0");
    for line in [
        "Version: 1.0.0",
        "Versions: 2.0.0, 1.0.0",
        "Category: skill",
        "Risk: trusted",
        "Time limit: 10 s",
    ] {
        assert!(shown.contains(&format!(" {line}\n")), "{line}: {shown}");
    }
    assert!(shown.contains("/skills/v@1.0.0/skill.json\n"), "{shown}");
    assert!(show("v").1.contains(" Version: 2.0.0\n"));
    let called = super::run(&daemon, &["call", "v@1.0.0", "{}"]);
    assert_eq!(code(&called), 0, "{called:?}");
    let called = super::run(&daemon, &["call", "v@3.0.0", "{}"]);
    let told = text(&called.stderr);
    assert!(
        told.contains("no version `3.0.0` of `v`; there is `2.0.0`, `1.0.0`"),
        "{told}"
    );
    // The same version from two directories is a clash, found before it is one.
    let said = desk.refused(&["install", "v", "--skills-dir", skills]);
    assert!(said.contains("`version` 2.0.0 of \"v\" is in "), "{said}");
    let said = desk.refused(&["remove", "v", "--skills-dir", skills]);
    assert!(said.contains("but v@1.0.0, v@2.0.0"), "{said}");
    desk.done(&["remove", "v@2.0.0", "--skills-dir", skills]);
    daemon.wait_until("it is gone", || show("v").1.contains(" Version: 1.0.0\n"));
    for name in ["v@2.0.0", "v", "none", "../v", "v@../v"] {
        let output = desk.tools(&["remove", name, "--skills-dir", skills]);
        assert_eq!(code(&output), 1, "{name}: {output:?}");
    }
    assert!(Path::new(skills).join("v@1.0.0/run").exists());
    // A directory stands for what was installed from it, and not for another of its name.
    fs::create_dir_all(desk.path("other/v")).expect("made");
    for dir in ["./none", "other/v", "./other"] {
        let said = desk.refused(&["remove", dir, "--skills-dir", skills]);
        assert!(
            said.contains("cannot find") || said.contains("no directory of a skill"),
            "{said}"
        );
    }
}

#[test]
fn a_place_that_is_not_there_is_no_place_for_skills() {
    let desk = Desk::new();
    desk.make("a");
    let skills = desk.path("nowhere/skills");
    let skills = skills.to_str().expect("UTF-8");
    let said = desk.refused(&["install", "a", "--skills-dir", skills]);
    assert!(said.contains("nowhere/skills"), "{said}");
    assert!(!desk.path("nowhere").exists());
    fs::create_dir(desk.path("nowhere")).expect("made");
    desk.done(&["install", "a", "--skills-dir", skills]);
}

#[test]
fn check_says_all_that_is_wrong_with_its_line() {
    let desk = Desk::new();
    let dir = desk.make("a");
    let manifest = "{\n  \"name\": \"b\",\n  \"version\": \"1\",\n  \"description\": \"x\",\n  \"mode\": \"code\",\n  \"command\": [\"./none\"],\n  \"input\": {\"type\": \"object\"},\n  \"calls\": [\"nobody\"],\n  \"colour\": 1\n}";
    fs::write(dir.join("skill.json"), manifest).expect("written");
    let output = desk.tools(&["check", "a"]);
    assert_eq!(code(&output), 1, "{output:?}");
    let file = dir.join("skill.json").display().to_string();
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    for (line, part) in [(3, "`version`"), (6, "./none"), (9, "`colour`")] {
        let found = lines
            .iter()
            .any(|told| told.starts_with(&format!("{file}:{line}: ")) && told.contains(part));
        assert!(found, "{line}: {lines:?}");
    }
    let output = desk.tools(&["--json", "check", "a"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (code(&output), &found["valid"]),
        (1, &json!(false)),
        "{found}"
    );
    assert_eq!(
        found["problems"].as_array().expect("a list").len(),
        lines.len()
    );
    // What a tool finds wrong with a value that is there already.
    let steps = json!([{"tool": "check_condition", "parameters": {"condition": "1 +"}}]);
    let manifest = json!({"name": "a", "version": "1.0.0", "description": "x", "mode": "composite",
        "input": {"type": "object"}, "steps": steps});
    fs::write(dir.join("skill.json"), manifest.to_string()).expect("written");
    let output = desk.tools(&["check", "a"]);
    let told = text(&output.stdout);
    assert!(told.contains(":1: `parameters/condition` "), "{told}");
    let output = desk.tools(&["a", "check", "a"]);
    assert_eq!(code(&output), 2, "{output:?}");
    // What it calls may stand beside it, or among those that are named.
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/config/skills");
    let recall = format!("{samples}/auto_recall");
    assert_eq!(desk.done(&["check", &recall]), "ok\n");
    let said = desk.tools(&["check", &recall, "--skills-dir", "nowhere"]);
    assert_eq!(code(&said), 1);
    assert!(
        text(&said.stdout).contains("\"memory_search\", which is unknown"),
        "{said:?}"
    );
}
