//! What the README tells people to do works, and the brain it shows is one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{Daemon, Provider, skip};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A block of commands, each line of which may be followed by what it prints.
struct Block {
    line: usize,
    script: String,
    expected: Vec<String>,
}

/// The blocks that begin with "```sh tested".
fn tested_blocks(markdown: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = markdown.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if line != "```sh tested" {
            continue;
        }
        let inside = lines.by_ref().map(|(_, line)| line);
        let (expected, script): (Vec<&str>, Vec<&str>) = inside
            .take_while(|line| *line != "```")
            .partition(|line| line.starts_with("# "));
        blocks.push(Block {
            line: at + 1,
            script: script.join("\n"),
            expected: expected.iter().map(|line| line[2..].to_owned()).collect(),
        });
    }
    blocks
}

/// Runs a script from the repository's top with our programs and `daemon`'s socket.
fn run(daemon: &Daemon, script: &str) -> Output {
    run_in(Path::new(ROOT), daemon, script)
}

fn run_in(dir: &Path, daemon: &Daemon, script: &str) -> Output {
    let programs = Path::new(env!("CARGO_BIN_EXE_shellyctl"))
        .parent()
        .expect("a directory");
    let path = std::env::var("PATH").expect("PATH");
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(dir)
        .env("TRY", daemon.dir())
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("SHELLY_SOCKET", daemon.socket())
        .stdin(Stdio::null());
    command.output().expect("bash is installed")
}

/// Whether `text` has the pieces of `pattern` between its `…`, in that order. Returns what follows.
fn after<'a>(text: &'a str, pattern: &str) -> Option<&'a str> {
    pattern.split('…').try_fold(text, |text, piece| {
        text.find(piece).map(|at| &text[at + piece.len()..])
    })
}

#[test]
fn its_commands_do_what_it_says() {
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).expect("there");
    let blocks = tested_blocks(&readme);
    assert!(
        blocks.len() >= 5,
        "only {} blocks are marked as tested",
        blocks.len()
    );
    let daemon = Daemon::start();
    for block in blocks {
        let output = run(&daemon, &block.script);
        hold("README.md", block, &output);
    }
}

/// What writing-tools.md has a newcomer do, in an empty directory.
#[test]
fn a_tool_is_written_as_it_says() {
    let path = Path::new(ROOT).join("docs/writing-tools.md");
    let blocks = tested_blocks(&fs::read_to_string(path).expect("there"));
    assert!(blocks.len() >= 3, "only {} are tested", blocks.len());
    let daemon = Daemon::start();
    for block in blocks {
        let output = run_in(daemon.dir(), &daemon, &block.script);
        hold("docs/writing-tools.md", block, &output);
    }
}

/// Holds what a block has printed against what is said of it.
fn hold(document: &str, block: Block, output: &Output) {
    let Block { line, expected, .. } = block;
    assert!(output.status.success(), "{document}:{line}: {output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        !expected.is_empty(),
        "{document}:{line}: says nothing of what is printed"
    );
    let mut rest = &*printed;
    for pattern in expected {
        rest = after(rest, &pattern).unwrap_or_else(|| {
            panic!("{document}:{line}: does not print {pattern:?}, but\n{printed}")
        });
    }
}

#[test]
fn its_links_lead_somewhere() {
    let documents = [
        "README.md",
        "CHANGELOG.md",
        "docs/ARCHITECTURE.md",
        "docs/writing-tools.md",
    ]
    .map(PathBuf::from);
    let decisions = fs::read_dir(Path::new(ROOT).join("docs/decisions")).expect("there");
    let decisions = decisions
        .map(|entry| Path::new("docs/decisions").join(entry.expect("an entry").file_name()));
    let mut links = 0;
    for document in documents.into_iter().chain(decisions) {
        let text = fs::read_to_string(Path::new(ROOT).join(&document)).expect("there");
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.contains("://") || link.starts_with('#') {
                continue;
            }
            let target = Path::new(ROOT)
                .join(&document)
                .with_file_name(link.split('#').next().unwrap_or(link));
            assert!(target.exists(), "{}: {link}", document.display());
            links += 1;
        }
    }
    assert!(links > 0);
}

/// The codes of problems in a source file.
fn problem_codes(source: &str) -> impl Iterator<Item = &str> {
    let made = source.split("Degradation {").skip(1);
    let named = made.filter_map(|made| {
        let (first, _) = made.trim_start().split_once('\n')?;
        first.strip_prefix("code: \"")?.strip_suffix("\",")
    });
    let constants = source.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("const ")?.split_once(": &str = \"")?;
        let is_one = name.ends_with("_INVALID") || source.contains(&format!("code: {name},"));
        let is_one = is_one || source.contains(&format!("=> {name},"));
        is_one.then(|| value.trim_end_matches("\";"))
    });
    let chosen = source.lines().filter_map(|line| {
        let (_, code) = line.split_once("=> \"")?;
        let code = code.strip_suffix("\",")?;
        code.starts_with("ledger_").then_some(code)
    });
    // That one is a call's.
    let all = named.chain(constants).chain(chosen);
    all.filter(|code| *code != "internal")
}

#[test]
fn every_problem_of_the_daemon_is_explained() {
    let page = fs::read_to_string(format!("{ROOT}/docs/metrics.md")).expect("readable");
    let (_, page) = page.split_once("## What may be wrong").expect("a section");
    let (table, _) = page.split_once("\n## ").expect("another section");
    let mut found = 0;
    let mut directories = vec![PathBuf::from(format!("{ROOT}/src"))];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let source = fs::read_to_string(&path).expect("text");
            let (source, _) = source
                .split_once("#[cfg(test)]\nmod tests {")
                .unwrap_or((&source, ""));
            for code in problem_codes(source) {
                assert!(
                    table.contains(&format!("`{code}`")),
                    "{}: {code}",
                    path.display()
                );
                found += 1;
            }
        }
    }
    assert!(found >= 18, "{found} are made somewhere");
}

#[test]
fn its_brain_works_with_a_model() {
    if Command::new("python3").arg("--version").output().is_err() {
        skip("the brain of the README, for there is no python3");
        return;
    }
    let daemon = Daemon::start();
    let file = daemon.dir().join("made");
    let calls = json!([
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_01", "name": "bash", "input": {"command": format!("echo made > {}", file.display())}},
        {"type": "tool_use", "id": "toolu_02", "name": "bash", "input": {"command": "echo seen; exit 3"}},
        {"type": "tool_use", "id": "toolu_03", "name": "bsh", "input": {}},
    ]);
    let provider = Provider::start(vec![calls, json!([{"type": "text", "text": "Done."}])]);

    let brain = format!(
        "ANTHROPIC_API_KEY=key ANTHROPIC_BASE_URL={} docs/brain.py make it so",
        provider.url()
    );
    let output = run(&daemon, &brain);
    let requests = provider.requests();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Let me look.\nDone.\n"
    );
    assert_eq!(
        fs::read_to_string(file).expect("made by the command"),
        "made\n"
    );

    let tools: Value = daemon.get("/tools").json();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0]["tools"], tools);
    assert_eq!(
        requests[0]["messages"],
        json!([{"role": "user", "content": "make it so"}])
    );
    let results = requests[1]["messages"][2]["content"]
        .as_array()
        .expect("results");
    let result = |at: usize| {
        (
            results[at]["content"].as_str().expect("text"),
            &results[at]["is_error"],
        )
    };
    assert_eq!(result(0), ("[exit_code]\n0", &json!(false)));
    assert_eq!(
        result(1),
        ("[stdout]\nseen\n\n[exit_code]\n3", &json!(true))
    );
    // Who did not answer is told.
    let nobody = "ANTHROPIC_BASE_URL=http://127.0.0.1:1 docs/brain.py make it so";
    for (brain, told) in [
        (
            nobody.to_owned(),
            "brain: no answer from the model at http://127.0.0.1:1/v1/messages: ",
        ),
        (
            format!("SHELLY_SOCKET=/nonexistent {nobody}"),
            "brain: no answer from the daemon on /nonexistent: ",
        ),
    ] {
        let output = run(&daemon, &brain);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with(told), "{said}");
    }
    assert_eq!(result(2).1, &json!(true));
    assert!(result(2).0.contains("did you mean `bash`?"), "{results:?}");
}
