//! What the ledger costs: a commit for one who waits and for many, and questions to a million
//! records. `cargo bench --bench ledger [-- RECORDS]`; the file is made in a temporary directory.

use std::collections::VecDeque;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use shelly_executor::domain::{ExecutionId, Status};
use shelly_executor::ledger::{
    CloseRecord, Digest, Durability, EventFilter, Events, Filter, Ledger, Limits, OpenRecord,
    Output, Place, Receipt, Ruling, Verdict,
};

type Outcome = Result<(), Box<dyn Error>>;

const WORDS: [&str; 16] = [
    "status",
    "nginx",
    "systemctl",
    "restart",
    "journal",
    "docker",
    "apt",
    "install",
    "grep",
    "error",
    "disk",
    "usage",
    "network",
    "deploy",
    "backup",
    "verify",
];

fn main() -> Outcome {
    let records = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok());
    let scratch = Scratch::new()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for (name, durability) in [
            ("process", Durability::Process),
            ("fsync", Durability::Fsync),
        ] {
            let file = scratch.0.join(name).join("ledger.db");
            let ledger = Ledger::open(&file, durability)?.ledger;
            println!("durability {name}");
            one_client(&ledger, None, if name == "fsync" { 300 } else { 20_000 }).await?;
            one_client(
                &ledger,
                Some("true"),
                if name == "fsync" { 300 } else { 5_000 },
            )
            .await?;
            many_clients(&ledger, 256, if name == "fsync" { 5_000 } else { 100_000 }).await?;
        }
        let file = scratch.0.join("many").join("ledger.db");
        million(&file, records.unwrap_or(1_000_000)).await
    })
}

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let dir = std::env::temp_dir().join(format!("shelly-ledger-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn opening(n: u64, created_at: SystemTime) -> OpenRecord {
    let word = |at: u64| {
        WORDS[(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (4 * at + 20)) as usize % WORDS.len()]
    };
    let command = format!("{} --{} {} | tail -n {n}", word(0), word(1), word(2));
    OpenRecord {
        id: ExecutionId::new(),
        tool: if n.is_multiple_of(10) {
            "read_file"
        } else {
            "bash"
        }
        .to_owned(),
        caller_uid: (1000 + n % 3) as u32,
        caller_gid: 1000,
        call: json!({"name": "bash", "input": {"command": command}}).into(),
        working_dir: Some("/srv".into()),
        asynchronous: false,
        status: Status::Running,
        created_at,
        replay_of: None,
        lineage: None,
        trace_id: None,
        tool_use_id: Some(format!("toolu_{n}")),
        idempotency: None,
        ruling: None,
    }
}

/// As a command with three lines of output would.
fn closing(n: u64, id: ExecutionId, ended_at: SystemTime) -> CloseRecord {
    let content = format!(
        "[stdout]\nresult {n} of {}\n\n[exit_code]\n0",
        WORDS[n as usize % WORDS.len()]
    );
    let output = |place| Output {
        bytes: 40,
        digest: Some(Digest::of(content.as_bytes())),
        place,
    };
    CloseRecord {
        id,
        status: match n % 1000 {
            0 => Status::Timeout,
            1..=50 => Status::Error,
            _ => Status::Success,
        },
        summary: "a command of some forty characters in all".to_owned(),
        ending: json!({"exit_code": 0, "signal": null, "oom_killed": false, "duration_ms": 3, "background": []}).into(),
        problem: None,
        usage: Some(json!({"cpu_ms": 1, "memory_peak_bytes": null}).into()),
        stages: stages().into(),
        started_at: Some(ended_at),
        ended_at,
        approved: None,
        stdout: output(Place::InContent { offset: 9 }),
        stderr: output(Place::Nowhere),
        content: output(Place::Inline(content.clone().into_bytes())),
    }
}

fn stages() -> Value {
    let stage = |name| json!([name, 1_700_000_000_000_000_u64, 1_700_000_000_000_100_u64]);
    json!(
        [
            "discovery",
            "validation",
            "permission",
            "confirmation",
            "execution",
            "formatting"
        ]
        .map(stage)
    )
}

/// What the pipeline does for one call; the last step is what its answer waits for.
fn begin(ledger: &Ledger, n: u64) -> ExecutionId {
    let record = OpenRecord {
        ruling: Some(Ruling {
            verdict: Verdict::Allow,
            rule: None,
            source: None,
        }),
        ..opening(n, SystemTime::now())
    };
    let id = record.id;
    drop(ledger.open_execution(record, Some(events(id, 10))));
    id
}

fn end(ledger: &Ledger, n: u64, id: ExecutionId) -> Receipt<()> {
    ledger.close_execution(closing(n, id, SystemTime::now()), Some(events(id, 4)))
}

/// As many as an execution has before its process is started, or after it has ended.
fn events(id: ExecutionId, count: usize) -> Events {
    let body = json!({"type": "stageCompleted", "stage": "validation", "duration_ms": 0.012});
    let event = (SystemTime::now(), body);
    Events {
        execution_id: Some(id),
        tool: Some("bash".to_owned()),
        caller_uid: Some(0),
        happened: vec![event; count].into_iter().collect(),
    }
}

async fn one_client(ledger: &Ledger, command: Option<&str>, calls: u64) -> Outcome {
    let (mut asking, mut waiting) = (Vec::new(), Vec::new());
    for n in 0..calls {
        let began = Instant::now();
        let id = begin(ledger, n);
        let begun = began.elapsed();
        if let Some(program) = command {
            // The writer sleeps meanwhile, as it does while a command runs.
            Command::new(program).status()?;
        }
        let began = Instant::now();
        let receipt = end(ledger, n, id);
        asking.push(begun + began.elapsed());
        receipt.await?;
        waiting.push(began.elapsed());
    }
    for times in [&mut asking, &mut waiting] {
        times.sort();
    }
    let at = |times: &[Duration], percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "  one client, commands {command:?}: queueing p50 {:?}, close to acknowledgement p50 {:?} p90 {:?} p99 {:?} max {:?}",
        at(&asking, 50),
        at(&waiting, 50),
        at(&waiting, 90),
        at(&waiting, 99),
        at(&waiting, 100),
    );
    Ok(())
}

async fn many_clients(ledger: &Ledger, clients: usize, calls: u64) -> Outcome {
    let began = Instant::now();
    let mut receipts = VecDeque::new();
    for n in 0..calls {
        let id = begin(ledger, n);
        receipts.push_back(end(ledger, n, id));
        if receipts.len() == clients
            && let Some(receipt) = receipts.pop_front()
        {
            receipt.await?;
        }
    }
    for receipt in receipts {
        receipt.await?;
    }
    println!(
        "  {clients} waiters: {:.0} executions a second",
        calls as f64 / began.elapsed().as_secs_f64()
    );
    Ok(())
}

async fn million(file: &std::path::Path, records: u64) -> Outcome {
    let ledger = Ledger::open(file, Durability::Process)?.ledger;
    let start = SystemTime::now() - Duration::from_secs(records);
    let began = Instant::now();
    let mut receipts = VecDeque::new();
    for n in 0..records {
        let record = opening(n, start + Duration::from_secs(n));
        let id = record.id;
        drop(ledger.open_execution(record, None));
        receipts.push_back(
            ledger.close_execution(closing(n, id, start + Duration::from_secs(n)), None),
        );
        if receipts.len() == 4096 {
            for receipt in receipts.drain(..2048) {
                receipt.await?;
            }
        }
    }
    for receipt in receipts {
        receipt.await?;
    }
    drop(ledger);
    println!(
        "{records} records: filled in {:?}, {} MiB",
        began.elapsed(),
        std::fs::metadata(file)?.len() >> 20
    );
    let began = Instant::now();
    let ledger = Ledger::open(file, Durability::Process)?.ledger;
    println!("  opened in {:?}", began.elapsed());
    questions(&ledger, start, records).await?;
    let began = Instant::now();
    let limits = Limits {
        max_count: Some(records - 1000.min(records)),
        ..Limits::default()
    };
    let mut forgotten = 0;
    ledger.prune(limits, |ids| forgotten += ids.len()).await?;
    println!("  forgot {forgotten} in {:?}", began.elapsed());
    let began = Instant::now();
    println!(
        "  verified in {:?}: {:?}",
        began.elapsed(),
        ledger.verify_audit(Vec::new(), |_| [None, None]).await?
    );
    println!("  (that took {:?})", began.elapsed());
    Ok(())
}

async fn questions(ledger: &Ledger, start: SystemTime, records: u64) -> Outcome {
    let limit = 50;
    let filter = || Filter {
        limit,
        ..Filter::default()
    };
    let text = |text: &str| Some(text.to_owned());
    let middle = start + Duration::from_secs(records / 2);
    let questions = [
        ("the newest", filter()),
        (
            "in the middle",
            Filter {
                until: Some(middle),
                since: Some(middle - Duration::from_secs(3600)),
                ..filter()
            },
        ),
        (
            "of a tool",
            Filter {
                tool: text("read_file"),
                ..filter()
            },
        ),
        (
            "a status",
            Filter {
                status: Some(Status::Error),
                ..filter()
            },
        ),
        (
            "a rare status",
            Filter {
                status: Some(Status::Timeout),
                ..filter()
            },
        ),
        (
            "none",
            Filter {
                status: Some(Status::Denied),
                ..filter()
            },
        ),
        (
            "three at once",
            Filter {
                tool: text("read_file"),
                status: Some(Status::Timeout),
                caller_uid: Some(1001),
                ..filter()
            },
        ),
        (
            "three, before the middle",
            Filter {
                tool: text("bash"),
                status: Some(Status::Error),
                caller_uid: Some(1001),
                until: Some(middle),
                ..filter()
            },
        ),
        (
            "a common word",
            Filter {
                text: text("nginx"),
                ..filter()
            },
        ),
        (
            "common words",
            Filter {
                text: text("nginx deploy error"),
                ..filter()
            },
        ),
        (
            "a rare word",
            Filter {
                text: text("777"),
                ..filter()
            },
        ),
        (
            "the beginning of a word",
            Filter {
                text: text("ngi*"),
                ..filter()
            },
        ),
        (
            "a common word, a rare status",
            Filter {
                text: text("nginx"),
                status: Some(Status::Timeout),
                ..filter()
            },
        ),
        (
            "a common word, before the middle",
            Filter {
                text: text("nginx"),
                until: Some(middle),
                ..filter()
            },
        ),
        (
            "no such word",
            Filter {
                text: text("nothingsuch"),
                ..filter()
            },
        ),
    ];
    for (name, filter) in questions {
        let mut times = Vec::new();
        let mut found = 0;
        for _ in 0..9 {
            let began = Instant::now();
            found = ledger
                .list(filter.clone(), |listed| listed.id)
                .await?
                .records
                .len();
            times.push(began.elapsed());
        }
        let first = times[0];
        times.sort();
        println!(
            "  {name}: {found} in {:?} (the first time {first:?})",
            times[4]
        );
    }
    let began = Instant::now();
    let events = ledger
        .events(0, EventFilter::default(), 100)
        .await?
        .events
        .len();
    println!("  {events} events in {:?}", began.elapsed());
    Ok(())
}
