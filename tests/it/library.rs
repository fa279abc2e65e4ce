//! The library as another crate sees it, without the daemon.

use std::error::Error;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use shelly_executor::domain::Exit;
use shelly_executor::pipeline::FlowSnapshot;
use shelly_executor::{Executor, ExecutorConfig, ExecutorError, ToolDefinition, ToolOutput};
use tokio::runtime::{Builder, Runtime};

use crate::support::{Fifo, Process, can_trace, scratch, wait_on, wait_until};

/// Both kinds of event loop that a host program may have.
fn runtimes() -> [Runtime; 2] {
    let mut single = Builder::new_current_thread();
    let mut multi = Builder::new_multi_thread();
    multi.worker_threads(2);
    [single.enable_all().build(), multi.enable_all().build()].map(|built| built.expect("a runtime"))
}

async fn bash(executor: &Executor, command: &str) -> Result<ToolOutput, ExecutorError> {
    executor.execute("bash", json!({"command": command})).await
}

/// What a file says, as soon as that is so many lines.
async fn lines_of(path: &Path, count: usize) -> String {
    let read = || std::fs::read_to_string(path).ok();
    let is_there = |text: &String| text.matches('\n').count() == count;
    wait_on("its lines", async || read().filter(is_there)).await
}

fn quick() -> ExecutorConfig {
    ExecutorConfig {
        default_timeout: Duration::from_millis(2500),
        kill_grace: Duration::from_millis(50),
        ..ExecutorConfig::default()
    }
}

#[test]
fn what_it_promises_of_its_types_holds() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send>(_: &T) {}
    fn error<T: Error + Send + Sync + 'static>() {}
    shared::<Executor>();
    shared::<ToolOutput>();
    shared::<ToolDefinition>();
    error::<ExecutorError>();
    let executor = Executor::new(ExecutorConfig::default());
    sent(&executor.execute("bash", Value::Null));
}

#[test]
fn it_runs_on_either_kind_of_runtime() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let executor = Executor::new(ExecutorConfig::default());
            let output = bash(&executor, "echo out; echo err >&2; exit 3")
                .await
                .expect("it ran");
            assert_eq!(
                output.content,
                "[stdout]\nout\n\n[stderr]\nerr\n\n[exit_code]\n3"
            );
            assert!(output.is_error && output.run.kill.is_none());
            // Shared between tasks, each with a call of its own.
            let calls = (0..16).map(|number| {
                let executor = executor.clone();
                tokio::spawn(async move { bash(&executor, &format!("echo {number}")).await })
            });
            let calls: Vec<_> = calls.collect();
            for (number, call) in calls.into_iter().enumerate() {
                let output = call.await.expect("no panic").expect("it ran");
                assert_eq!(
                    output.content,
                    format!("[stdout]\n{number}\n\n[exit_code]\n0")
                );
            }
        });
    }
}

#[test]
fn its_defaults_are_those_of_the_seed() {
    let config = ExecutorConfig::default();
    assert_eq!(config.default_timeout, Duration::from_secs(30));
    assert_eq!(config.max_output_bytes, 1_048_576);
    assert_eq!(config.shell, PathBuf::from("/bin/sh"));
    let tools = Executor::new(config).tool_definitions();
    assert_eq!(tools.len(), 1);
    assert!(
        tools[0].description.contains("/bin/sh"),
        "{}",
        tools[0].description
    );
    let pasted = serde_json::to_value(&tools).expect("JSON");
    assert_eq!(pasted[0]["name"], "bash");
    assert_eq!(pasted[0]["input_schema"]["required"], json!(["command"]));
    assert_eq!(pasted[0].as_object().map(serde_json::Map::len), Some(3));
}

#[test]
fn dropping_the_future_kills_the_tree() {
    let dir = scratch();
    for (number, runtime) in runtimes().into_iter().enumerate() {
        let pids = dir.join(format!("pids-{number}"));
        let script = format!(
            "trap '' TERM; sleep 1000 & echo $$ $! > {}; wait",
            pids.display()
        );
        let executor = Executor::new(quick());
        let config = ExecutorConfig {
            default_timeout: Duration::from_secs(1000),
            ..quick()
        };
        executor.reconfigure(config);
        let text = runtime.block_on(async {
            // The call loses, and is dropped with that.
            tokio::select! {
                ended = bash(&executor, &script) => panic!("it ended: {ended:?}"),
                text = lines_of(&pids, 1) => text,
            }
        });
        for pid in text.split_whitespace() {
            let pid: i32 = pid.parse().expect("a pid");
            // The runtime must be driven for the kill to get anywhere.
            runtime.block_on(wait_on("its end", async || {
                (!Process::lives(pid)).then_some(())
            }));
        }
    }
    std::fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn a_timeout_carries_what_there_was() {
    for runtime in runtimes() {
        let executor = Executor::new(quick());
        let ended = runtime.block_on(bash(&executor, "echo out; echo err >&2; sleep 1000"));
        let error = ended.expect_err("too late");
        assert_eq!(error.tool_name(), "bash");
        assert_eq!(
            error.to_string(),
            "`bash` was killed at its time limit of 2.5s"
        );
        let ExecutorError::Timeout { limit, partial, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(limit, Duration::from_millis(2500));
        assert_eq!(
            partial.content,
            "[stdout]\nout\n\n[stderr]\nerr\n\n[timeout]\n2.5s"
        );
        assert_eq!((partial.run.stdout_bytes, partial.run.stderr_bytes), (4, 4));
        assert!(partial.is_error && partial.run.kill.is_some());
    }
}

/// Both have happened when the event loop looks again.
#[test]
fn what_ended_before_its_limit_was_not_stopped() {
    const CALLS: usize = 8;
    let [single, _] = runtimes();
    let dir = scratch();
    let (fifo, pids) = (Fifo::new(dir.join("fifo")), dir.join("pids"));
    let gate = OpenOptions::new().read(true).write(true).open(fifo.path());
    let gate = gate.expect("opened");
    let script = format!(
        "exec <{}; echo $$ >>{}; read _; exit 7",
        fifo.path().display(),
        pids.display()
    );
    let config = ExecutorConfig {
        default_timeout: Duration::from_secs(5),
        ..ExecutorConfig::default()
    };
    let executor = Executor::new(config.clone());
    let begun = Instant::now();
    let busy = async {
        let pids = lines_of(&pids, CALLS).await;
        let limit = begun.elapsed() + config.default_timeout;
        drop(gate);
        for pid in pids.lines() {
            let pid = pid.parse().expect("a pid");
            wait_until("it has ended", || !Process::lives(pid));
        }
        wait_until("its time has passed", || begun.elapsed() > limit);
    };
    let calls = join_all((0..CALLS).map(|_| bash(&executor, &script)));
    let (ended, ()) = single.block_on(async { tokio::join!(calls, busy) });
    for ended in ended {
        let run = ended.expect("it ended by itself").run;
        assert_eq!((run.exit, run.kill), (Some(Exit::Code(7)), None));
    }
    std::fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn errors_name_the_tool_and_their_cause() {
    let [runtime, _] = runtimes();
    let lost = ExecutorConfig {
        shell: PathBuf::from("/nonexistent/shell"),
        ..ExecutorConfig::default()
    };
    runtime.block_on(async {
        let error = bash(&Executor::new(lost), "true").await.expect_err("no shell");
        let source = error.source().expect("the kernel's reason");
        let source = source.downcast_ref::<std::io::Error>().expect("an IO error");
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
        assert!(matches!(error, ExecutorError::SpawnFailed { .. }));
        assert!(error.to_string().contains("/nonexistent/shell"), "{error}");
        assert!(error.chain().contains("No such file"), "{}", error.chain());

        let executor = Executor::new(ExecutorConfig::default());
        let error = executor.execute("bsh", json!({"command": "true"})).await.expect_err("unknown");
        assert!(matches!(&error, ExecutorError::UnknownTool { nearest: Some(near), .. } if near == "bash"));
        for input in [json!({}), json!(7), json!({"command": ["df"]}), json!({"command": "a\0"})] {
            let error = executor.execute("bash", input).await.expect_err("invalid");
            assert!(matches!(error, ExecutorError::InvalidInput { .. }), "{error:?}");
            assert_eq!(error.tool_name(), "bash");
        }
    });
}

#[test]
fn summaries_are_short_and_keep_secrets() {
    let [runtime, _] = runtimes();
    let executor = Executor::new(quick());
    let long = format!("PGPASSWORD=hunter2 sleep 1000; # {}", "é".repeat(1000));
    runtime.block_on(async {
        let late = bash(&executor, &long).await.expect_err("too late");
        let unknown = executor.execute(
            "curl",
            json!({"url": "https://me:hunter2@host/", "pad": "x".repeat(500)}),
        );
        let invalid = executor.execute(
            "bash",
            json!({"api_key": "hunter2", "pad": "x".repeat(500)}),
        );
        for error in [
            late,
            unknown.await.expect_err("unknown"),
            invalid.await.expect_err("invalid"),
        ] {
            let summary = error.input_summary();
            assert_eq!(summary.chars().count(), 200, "{summary}");
            assert!(
                !format!("{error}{}{summary}", error.chain()).contains("hunter2"),
                "{error:?}"
            );
        }
        let short = executor
            .execute("curl", json!({"a": 1}))
            .await
            .expect_err("unknown");
        assert_eq!(short.input_summary(), r#"{"a":1}"#);
    });
}

#[test]
fn what_it_is_told_to_use_is_used() {
    let [runtime, _] = runtimes();
    let config = ExecutorConfig {
        working_dir: Some(PathBuf::from("/usr")),
        env: [("GREETING".to_owned(), "hello".to_owned())].into(),
        shell: PathBuf::from("/bin/bash"),
        max_output_bytes: 12,
        ..ExecutorConfig::default()
    };
    let output = runtime.block_on(bash(
        &Executor::new(config),
        "pwd; echo ${GREETING^^}; echo more",
    ));
    let output = output.expect("it ran");
    assert_eq!(
        output.content,
        "[stdout]\n/usr\nHELLO\nm\n...(truncated)\n\n[exit_code]\n0"
    );
    assert!(output.run.truncated);
}

/// Marks in a trace where the construction begins and ends.
const MARKS: [&str; 2] = ["/nonexistent/begin", "/nonexistent/end"];

#[test]
fn nothing_it_is_told_of_has_to_be_there() {
    let config = ExecutorConfig {
        tools_file: Some(PathBuf::from("/nonexistent/tools.toml")),
        spool: Some(shelly_executor::config::SpoolConfig {
            dir: PathBuf::from("/nonexistent/spool"),
            max_bytes: 1,
            total_bytes: 1,
            lasting: false,
        }),
        ..ExecutorConfig::default()
    };
    assert!(!PathBuf::from(MARKS[0]).exists());
    let executor = Executor::new(config);
    assert!(!PathBuf::from(MARKS[1]).exists());
    assert_eq!(executor.tool_definitions()[0].name, "bash");
}

#[test]
fn constructing_it_never_touches_the_disk() {
    if !can_trace("that Executor::new touches no file") {
        return;
    }
    let dir = scratch();
    let trace = dir.join("trace");
    let status = Command::new("strace")
        .args(["-f", "-e", "trace=%file,%desc,%network,%process", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "library::nothing_it_is_told_of_has_to_be_there"])
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.expect("strace starts").success());
    let trace = std::fs::read_to_string(&trace).expect("a trace");
    let position = |mark: &str| {
        trace
            .find(mark)
            .unwrap_or_else(|| panic!("no {mark} in {trace}"))
    };
    let between = &trace[position(MARKS[0])..position(MARKS[1])];
    let (thread, _) = trace[..position(MARKS[0])]
        .rsplit_once('\n')
        .map_or(("", ""), |(_, line)| {
            line.split_once(' ').unwrap_or_default()
        });
    // The first line is the rest of the first mark, the last the beginning of the second.
    let lines: Vec<&str> = between.lines().collect();
    let calls: Vec<&&str> = lines[1..lines.len() - 1]
        .iter()
        .filter(|line| line.starts_with(thread))
        // Memory is a matter of descriptors to strace, and none of a disk.
        .filter(|line| {
            !["mmap", "munmap", "mprotect", "madvise"]
                .iter()
                .any(|call| line.contains(&format!(" {call}(")))
        })
        .collect();
    assert!(calls.is_empty(), "{calls:#?}");
    std::fs::remove_dir_all(dir).expect("ours");
}

/// Nothing is limited unless it is asked for, and who does not wait any more is in no queue.
#[test]
fn how_calls_flow_can_be_seen() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let free = Executor::new(quick());
            bash(&free, "true").await.expect("it ran");
            assert_eq!(free.flow(), FlowSnapshot::default());

            let mut config = quick();
            config.default_timeout = Duration::from_secs(100);
            config.flow.max_running = Some(1);
            config.flow.queue_max = 1;
            let executor = Executor::new(config);
            let of_bash = || executor.flow().tools.remove("bash").unwrap_or_default();
            let until = async |running, queued| {
                let is_so = || (of_bash().running, of_bash().queued) == (running, queued);
                wait_on("their places", async || is_so().then_some(())).await;
            };
            let first = bash(&executor, "sleep 100");
            let second = bash(&executor, "true");
            let (mut first, mut second) = (Box::pin(first), Box::pin(second));
            tokio::select! {
                _ = &mut first => panic!("it takes longer"),
                () = until(1, 0) => {}
            }
            tokio::select! {
                _ = &mut second => panic!("there is no place"),
                () = until(1, 1) => {}
            }
            let refused = bash(&executor, "true").await.expect_err("no room to wait");
            assert!(refused.retry_after().is_some(), "{refused}");
            assert_eq!(executor.flow().refused.queue_full, 1);
            drop(second);
            until(1, 0).await;
            drop(first);
            until(0, 0).await;
        });
    }
}
