//! What was written to take all memory or time, measured in a process of its own.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::*;

/// Names the process in which the cases run.
const CHILD: &str = "SHELLY_TEST_HOSTILE";
/// The stack that a thread has when nobody says otherwise.
const STACK: usize = 2 << 20;
/// What a case may take: what an evaluation makes, and twice that for what is on its way.
const MEMORY: u64 = 48 << 20;
/// Unoptimised, on a busy machine.
const TIME: Duration = Duration::from_secs(10);

/// Expressions by a name; `big` is a text of 8 MiB, `long` a list of 100,000 numbers.
fn cases() -> Vec<(&'static str, String)> {
    let case = |name, text: &str| (name, text.to_owned());
    let many = |text: &str, count: usize| text.repeat(count);
    vec![
        case("text times", "'a' * 10**9"),
        case("text times twice", "'x' * 1000000 * 1000"),
        case("text times three", "9223372036854775807 * 'abc'"),
        case("list times", "[0] * 10**9"),
        case("list of lists", "[[0] * 1000] * 1000 * 1000"),
        case("empty list times", "[] * 10**18"),
        case("power", "10 ** 10 ** 10"),
        case(
            "power of one",
            "(-1) ** 9223372036854775807 + 2 ** 9223372036854775807",
        ),
        case("no range", "range(10**9)"),
        case("no format", "'%1000000000d' % 1"),
        case("no format method", "'{:1000000000}'.format(1)"),
        case("no ljust", "'a'.ljust(10**9)"),
        case("join", "big.join(['a', 'b', 'c', 'd', 'e'])"),
        case(
            "nested join",
            "('x' * 4000).join(('y' * 4000).join(['a'] * 4000).split('a'))",
        ),
        case("replace", "('a' * 1000000).replace('a', 'b' * 1000)"),
        case("replace nothing", "big.replace('', 'abc')"),
        case(
            "replace chain",
            &format!("'aa'{}", many(".replace('a', 'aaaaaaaa')", 30)),
        ),
        case("split", "big.split('a')"),
        case("rsplit", "(' ' * 1000000 + 'a ' * 500000).rsplit() == []"),
        case("splitlines", "big.replace('a', '\\n').splitlines()"),
        case("upper", "('ŉ' * 5000000).upper()"),
        case("concatenation", &format!("big{}", many("+big", 16_000))),
        case("copies", &format!("[{}]", many("big,", 16_000))),
        case(
            "members",
            &format!(
                "{{{}}}",
                (0..4_000)
                    .map(|n| format!("'{n}':big,"))
                    .collect::<String>()
            ),
        ),
        case(
            "searches",
            &format!("'b' in big{}", many(" or 'b' in big", 4_000)),
        ),
        case(
            "comparisons",
            &format!("big == big{}", many(" == big", 7_000)),
        ),
        case("counts", &many("+big.count('ab')", 4_000)),
        case("strips", &many("+len(big.strip('a'))", 3_000)),
        case("strip of much", "big.strip(big)"),
        case("indices", &many("+len(big[5])", 4_000)),
        case("slices", &many("+len(big[::-1])", 4_000)),
        case("sorts", &many("+len(sorted(long))", 3_000)),
        case("list searches", &many("+long.count(7)", 3_000)),
        // What is compared with each item is looked at no further than it is alike.
        case("list in list", "([0] * 50000).count([0] * 50000) == 0"),
        case("list in list in vain", "([0] * 50000).index([0] * 50000)"),
        case("greatest list", "max([[0] * 50000] + [[]] * 10000)"),
        case("sorted lists", "sorted([[0] * 10000] + [[1]] * 10000)"),
        case(
            "alike lists",
            "[[0] * 2000] * 10 == [[0] * 2000] * 10 and 1",
        ),
        case(
            "alike lists again",
            &format!("long == long{}", many(" == long", 100)),
        ),
        case(
            "starts",
            &format!("big.startswith([{}])", many("big,", 10_000)),
        ),
        case("json out", "tojson('\\x01' * 4000000)"),
        case("json in", "fromjson('[' + '{},' * 4000000 + '0]')"),
        case(
            "json members",
            "fromjson('[' + '{\"a\":1},' * 1000000 + '0]')",
        ),
        case("json deep", "fromjson('[' * 1000000)"),
        case("dicts", &format!("[{}]", many("{'a':1},", 8_000))),
        case(
            "parentheses",
            &format!("{}1{}", many("(", 100_000), many(")", 100_000)),
        ),
        case(
            "fewer parentheses",
            &format!("{}1{}", many("(", 30_000), many(")", 30_000)),
        ),
        case("brackets", &many("[", 65_000)),
        case("braces", &many("{'a':", 13_000)),
        case("subscripts", &many("long[", 13_000)),
        case("minus", &many("-", 65_000)),
        case("plus", &format!("{}1", many("+", 65_000))),
        case("not", &many("not ", 16_000)),
        case("powers", &many("2**", 20_000)),
        case("choices", &many("1 if 0 else ", 5_000)),
        case("calls", &many("len(", 16_000)),
        case("methods", &format!("''{}", many(".strip()", 8_000))),
        case("sums", &format!("0{}", many("+0", 32_000))),
        case("ands", &format!("1{}", many(" and 1", 10_000))),
        case("chained", &format!("1{}", many("<1", 32_000))),
        case("items", &format!("long{}", many("[0]", 20_000))),
        case("texts side by side", &many("'a'", 21_000)),
        case("too long", &many(" ", SOURCE_LIMIT + 1)),
        case("quotes", &many("'", 65_001)),
        case("template braces", &many("{{", 30_000)),
    ]
}

/// Those that end well: everything else here must be refused.
const FINE: &[&str] = &[
    "dicts",
    "sums",
    "ands",
    "texts side by side",
    "methods",
    "chained",
    "list in list",
    "greatest list",
    "sorted lists",
    "alike lists",
];

#[test]
fn what_would_take_all_memory_or_time_is_refused_in_bounds() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg("tools::expression::tests::hostile::the_cases")
        .env(CHILD, "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("starts");
    let told = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{}: {told}", child.status);
    assert!(told.contains("largest"), "it ran: {told}");
}

#[test]
fn the_cases() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let thread = std::thread::Builder::new().stack_size(STACK);
    let thread = thread.spawn(run_cases).expect("a thread");
    thread.join().expect("each case holds");
}

fn run_cases() {
    let mut scope = Map::new();
    scope.insert("big".into(), "a".repeat(8 << 20).into());
    scope.insert("long".into(), (0..100_000).collect::<Vec<i32>>().into());
    let cases = cases();
    // An allocation that goes far beyond ends the process.
    let (before, limit) = getrlimit(Resource::RLIMIT_AS).expect("known");
    let allowed = figure("VmSize") + 2 * MEMORY;
    setrlimit(Resource::RLIMIT_AS, allowed, limit).expect("may be lowered");
    let (mut largest, mut slowest) = ((0, ""), (Duration::ZERO, ""));
    let mut failures = Vec::new();
    for (name, text) in &cases {
        std::fs::write("/proc/self/clear_refs", "5").expect("the peak is forgotten");
        let (before, started) = (figure("VmRSS"), Instant::now());
        let checked = check(text, &scope).map(|(holds, _)| holds);
        let template = Template::text(&format!("{{{{ {text} }}}}"));
        let rendered = template.and_then(|template| template.render(&scope));
        let elapsed = started.elapsed();
        let grown = figure("VmHWM").saturating_sub(before);
        let is_fine = FINE.contains(name);
        if checked.is_ok() != is_fine || rendered.is_ok() != is_fine {
            failures.push(format!("{name}: {checked:?}, {:?}", rendered.is_ok()));
        }
        if elapsed > TIME || grown > MEMORY {
            failures.push(format!("{name} took {elapsed:?} and {grown} bytes"));
        }
        largest = largest.max((grown, name));
        slowest = slowest.max((elapsed, name));
    }
    // Whoever fails wants memory for telling it.
    setrlimit(Resource::RLIMIT_AS, before, limit).expect("may be raised again");
    assert!(failures.is_empty(), "{failures:#?}");
    eprintln!("largest {largest:?}, slowest {slowest:?}");
}

/// A figure of this process in bytes.
fn figure(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status
        .lines()
        .find(|line| line.starts_with(name))
        .expect(name);
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number");
    kib << 10
}

#[test]
fn values_that_nest_too_deeply_are_refused() {
    let deep = (0..10_000).fold(json!("{{ 1 }}"), |value, _| Value::Array(vec![value]));
    let errors = Template::parse(&deep).expect_err("too deep");
    assert_eq!(
        errors[0].to_string(),
        "a value nests more than 128 levels deep (line 1, column 1)"
    );
    let mut scope = Map::new();
    scope.insert("deep".into(), deep);
    for expression in [
        "deep",
        "str(deep)",
        "deep == deep",
        "[deep]",
        "tojson(deep)",
        "deep in [deep]",
        "sorted(deep)",
    ] {
        let error = check(expression, &scope).expect_err(expression);
        assert!(
            error.detail.starts_with("a value nests more than 128"),
            "{error}"
        );
    }
    // Somebody has to take it apart again; serde_json does so level by level.
    std::mem::forget(scope);
}
