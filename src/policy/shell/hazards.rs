//! What no pattern may allow: programs, built-ins and options that run what their text names
//! elsewhere, or change what later words mean. The list is an operator's safety net, not the
//! guarantee: it cannot name every program there is.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::super::paths::base_name;
use super::git;
use super::programs::{
    ARGUMENTS, BUILTINS, DEFAULT_FILES, OPTIONS, Options, PROGRAMS, REMOTE, RUNS, SETTINGS, WRAPPER,
};

/// Why a command is on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    /// It runs other programs, or code in its arguments. Written out whole, without a wildcard,
    /// it may be allowed: then the operator has seen all of it.
    Runs(&'static str),
    /// It changes what the commands after it mean. Never allowable by a pattern.
    Shell(&'static str),
}

impl Hazard {
    /// What it is, as the end of a sentence.
    pub fn what(self) -> &'static str {
        match self {
            Self::Runs(what) | Self::Shell(what) => what,
        }
    }
}

/// Whether `words` is on the list, and why.
pub fn hazard(words: &[String]) -> Option<Hazard> {
    let (name, arguments) = words.split_first()?;
    let program = base_name(name);
    if let Some(what) = BUILTINS_BY_NAME.get(program).copied() {
        return (!only_ends(program, arguments)).then_some(Hazard::Shell(what));
    }
    if program == "printf" && assigns(arguments) {
        return Some(Hazard::Shell("assigns to a variable, PATH maybe"));
    }
    let by_option = || given(program, arguments).next().map(|one| one.what);
    let by_argument = || {
        let mut of = ARGUMENTS.iter().filter(|(of, ..)| *of == program);
        let names = |word: &str, listed: &[&str], least| match least {
            0 => listed.contains(&word),
            least => listed.iter().any(|one| is_short(word, one, least)),
        };
        let found = of
            .find(|(_, listed, least, _)| arguments.iter().any(|word| names(word, listed, *least)));
        found.map(|(.., what)| *what)
    };
    by_name(program)
        .or_else(by_option)
        .or_else(by_argument)
        .or_else(|| special(program, arguments))
        .map(Hazard::Runs)
}

/// What is on the list for options that `program` is given.
fn given(program: &str, arguments: &[String]) -> impl Iterator<Item = &'static Options> {
    let program = native(program);
    OPTIONS.iter().filter(move |one| {
        let is = one.programs.contains(&program) || one.programs.contains(&unversioned(program));
        let gives = |option: &&str| arguments.iter().any(|word| gives(word, option, one.valued));
        is && one.options.iter().any(gives)
    })
}

/// Whether a program has options that name another.
pub(super) fn has_options(program: &str) -> bool {
    let program = native(program);
    let names = [program, unversioned(program)];
    let mut of_it = OPTIONS
        .iter()
        .filter(|one| one.what == RUNS || one.what == SETTINGS);
    of_it.any(|one| names.iter().any(|name| one.programs.contains(name)))
}

/// What the values of options name that a program runs.
pub(super) fn run_by_options<'w>(program: &str, arguments: &'w [String]) -> Vec<&'w str> {
    /// Those that run a program that they do not name.
    const WITHOUT_VALUE: &[(&str, &[&str])] = &[
        ("ack", &["--output"]),
        ("ag", &["--output"]),
        ("diff", &["-l", "--paginate"]),
        ("rg", &["-z", "--search-zip"]),
        ("zip", &["-T"]),
    ];
    let is_old_style =
        |group: &String| program == "tar" && !group.starts_with('-') && group.contains(['I', 'F']);
    let mut values = Vec::new();
    if arguments.first().is_some_and(is_old_style) {
        // Their values follow one another.
        values.extend(arguments[1..].iter().map(String::as_str));
    }
    for one in given(program, arguments).filter(|one| one.what == RUNS || one.what == SETTINGS) {
        let has_value = |option: &&&str| {
            let is = |(of, options): &(&str, &[&str])| *of == program && options.contains(option);
            !WITHOUT_VALUE.iter().any(is)
        };
        for option in one.options.iter().filter(has_value) {
            values.extend(values_of(option, one.valued, arguments));
        }
    }
    // `--checkpoint-action=exec=COMMAND`.
    let inner = |value: &&'w str| Some(value.split_once('=')?.1);
    let inner: Vec<&str> = values.iter().filter_map(inner).collect();
    values.extend(inner);
    // `--config=alias.x=!COMMAND`.
    let last = |value: &&'w str| value.rsplit_once('=').map_or(*value, |(_, last)| last);
    let aliases: Vec<&str> = values.iter().map(last).collect();
    let aliases = aliases.iter().filter_map(|value| value.strip_prefix('!'));
    values.extend(aliases.collect::<Vec<_>>());
    values
}

/// The values of an option, however it is given; see [`gives`].
pub(super) fn values_of<'w>(
    option: &str,
    valued: &str,
    arguments: &'w [String],
) -> impl Iterator<Item = &'w str> {
    let given = arguments.iter().enumerate();
    let given = given.filter(move |(_, word)| gives(word, option, valued));
    given.filter_map(move |(at, word)| {
        let next = || Some(arguments.get(at + 1)?.as_str());
        attached_to(word, option).or_else(next)
    })
}

/// The value that stands in the same word as the option.
fn attached_to<'w>(word: &'w str, option: &str) -> Option<&'w str> {
    let letter = option.strip_prefix('-').filter(|name| name.len() == 1);
    let split = match letter {
        Some(letter) => word.split_once(letter),
        None => word.split_once('='),
    };
    split
        .map(|(_, value)| value)
        .filter(|value| !value.is_empty())
}

/// Why a program is on the list whatever its options are.
fn by_name(program: &str) -> Option<&'static str> {
    let native = native(program);
    let listed = |name| PROGRAMS_BY_NAME.get(name).copied();
    listed(native)
        .or_else(|| listed(unversioned(native)))
        .or_else(|| is_machine(native).then_some(WRAPPER))
}

/// A program's name without the machine that it is for: gcc is x86_64-linux-gnu-gcc as well, and perl
/// perl5.36-x86_64-linux-gnu.
fn native(program: &str) -> &str {
    const SYSTEM: &str = "-linux-gnu";
    if let Some((_, name)) = program.rsplit_once("-linux-gnu-") {
        return name;
    }
    let machine = program.strip_suffix(SYSTEM);
    let name = machine.and_then(|of| of.rsplit_once('-'));
    name.map_or(program, |(name, _)| name)
}

/// Whether it is one of QEMU's processors or machines: the former run a program, the latter what options such as
/// `-netdev tap,script=` name.
fn is_machine(program: &str) -> bool {
    const TOOLS: [&str; 8] = [
        "edid",
        "ga",
        "img",
        "io",
        "keymap",
        "nbd",
        "pr-helper",
        "storage-daemon",
    ];
    let of = program.strip_prefix("qemu-");
    of.is_some_and(|of| !TOOLS.contains(&of))
}

/// A program's name without the version behind it.
pub(super) fn unversioned(program: &str) -> &str {
    match program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-') {
        // `[` and `7z` have none.
        "" => program,
        name => name,
    }
}

/// How many times all words of a program are looked through, roughly; never for what is in no list.
pub(super) fn looks(name: &str) -> usize {
    let names = [native(name), unversioned(native(name))];
    let own = OPTIONS.iter().filter(|one| {
        let mut names = names.iter();
        names.any(|name| one.programs.contains(name))
    });
    let is_known = name == "git" || by_name(name).is_some();
    own.map(|one| one.options.len()).sum::<usize>() + if is_known { 4 } else { 0 }
}

/// Whether a program is on the list, at least with some options.
pub(super) fn is_listed(name: &str) -> bool {
    looks(name) > 0
}

/// Whether a program runs what its arguments name, here or elsewhere.
pub fn runs_its_arguments(name: &str) -> bool {
    by_name(name).is_some_and(|what| what == WRAPPER || what == REMOTE)
}

/// Whether a program runs commands on another machine, or in another root.
pub(super) fn runs_elsewhere(name: &str) -> bool {
    by_name(name).is_some_and(|what| what == REMOTE)
}

/// Whether what `name` does is decided by what is in the files it is given, as a script decides
/// what a shell does.
pub fn obeys_files(name: &str) -> bool {
    let program = base_name(name);
    // With the last four a shell names itself.
    matches!(
        program,
        "." | "source" | "sed" | "eval" | "$SHELL" | "${SHELL}" | "$BASH" | "${BASH}"
    ) || by_name(program).is_some()
}

/// The files of its directory that a program obeys without their being named.
pub fn default_files(name: &str) -> &'static [&'static str] {
    let program = base_name(name);
    let of = DEFAULT_FILES
        .iter()
        .find(|(programs, _)| programs.contains(&program));
    of.map_or(&[], |(_, files)| files)
}

/// Whether the program `name` is on the list whatever its arguments are.
pub fn always(name: &str) -> Option<Hazard> {
    // Alone it is, and with some options not.
    let is_at_times = name == "set";
    hazard(&[name.to_owned()]).filter(|_| !is_at_times)
}

/// Whether bash's printf sets a variable: by its option, or by a conversion that counts (`%n`).
fn assigns(arguments: &[String]) -> bool {
    let mut arguments = arguments.iter().map(String::as_str).peekable();
    if arguments.peek().is_some_and(|word| word.starts_with("-v")) {
        return true;
    }
    let format = arguments.find(|word| *word != "--").unwrap_or_default();
    let format = format.replace("%%", "");
    format.split('%').skip(1).any(|after| {
        // Flags, width, precision and length stand between.
        let conversion = after
            .trim_start_matches(|c: char| c.is_ascii_digit() || "-+ #0'*.$hlLjztq".contains(c));
        conversion.starts_with('n')
    })
}

/// Whether a built-in does nothing but to end something, or to have the script end where a command fails.
fn only_ends(program: &str, arguments: &[String]) -> bool {
    let is_number = |word: &String| word.bytes().all(|byte| byte.is_ascii_digit());
    let mut words = arguments.iter().map(String::as_str);
    match program {
        "exit" | "return" | "break" | "continue" => arguments.iter().all(is_number),
        "set" if arguments.is_empty() => false,
        "set" => words.all(|word| {
            let letters = word
                .strip_prefix(['-', '+'])
                .filter(|group| !group.is_empty());
            let is_group = |group: &str| group.bytes().all(|letter| b"euo".contains(&letter));
            matches!(word, "errexit" | "nounset" | "pipefail") || letters.is_some_and(is_group)
        }),
        _ => false,
    }
}

/// What names are listed for. Each word of a script is looked up that may name a command, and there are many names.
type Listed = LazyLock<HashMap<&'static str, &'static str>>;

static BUILTINS_BY_NAME: Listed = LazyLock::new(|| by_names(BUILTINS));
static PROGRAMS_BY_NAME: Listed = LazyLock::new(|| by_names(PROGRAMS));

fn by_names(
    list: &'static [(&'static str, &'static [&'static str])],
) -> HashMap<&'static str, &'static str> {
    // Of a name that is there twice the first counts.
    let list = list.iter().rev();
    list.flat_map(|(what, names)| names.iter().map(|name| (*name, *what)))
        .collect()
}

/// Whether `word` gives `option`, abbreviated, with a value attached, or in a group, where what
/// stands behind a letter of `valued` is its value.
pub(super) fn gives(word: &str, option: &str, valued: &str) -> bool {
    if let Some(long) = option.strip_prefix("--") {
        let Some(given) = word.strip_prefix("--") else {
            return false;
        };
        let given = given.split('=').next().unwrap_or(given);
        // For curl, an option in whose value variables count is another one.
        let given = given.strip_prefix("expand-").unwrap_or(given);
        // curl's own, of which `--cookie-jar` is another.
        let is_whole = given == "cookie";
        return !given.is_empty() && !is_whole && is_beginning(given, long);
    }
    let Some(given) = word.strip_prefix('-') else {
        return false;
    };
    let name = &option[1..];
    if name.len() == 1 {
        let mut group = given.chars();
        let end = group.find(|letter| name.contains(*letter) || valued.contains(*letter));
        return !given.starts_with('-') && end.is_some_and(|letter| name.contains(letter));
    }
    let given = given.strip_prefix('-').unwrap_or(given);
    let rest = given.strip_prefix(name);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Whether `given` is a beginning of `long`. apt takes capitals, and mysql `_` for `-`.
fn is_beginning(given: &str, long: &str) -> bool {
    let plain = |byte: u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    given.len() <= long.len() && given.bytes().map(plain).eq(long.bytes().take(given.len()))
}

/// Whether a word stands for another of which it is a beginning, of so many letters at least.
pub(super) fn is_short(word: &str, whole: &str, least: usize) -> bool {
    word.len() >= least && whole.starts_with(word)
}

/// The words of `arguments` that are no options, nor values of those in `valued`, which are
/// letters and beginnings of long ones. Behind a letter of `attached` the group ends.
fn operands<'w>(
    arguments: &'w [String],
    valued: &str,
    valued_long: &[&str],
    attached: &str,
) -> Vec<&'w str> {
    let mut found = Vec::new();
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if word == "--" {
            found.extend(rest);
            break;
        }
        let takes_next = if let Some(long) = word.strip_prefix("--") {
            valued_long.iter().any(|option| is_beginning(long, option))
        } else if let Some(group) = word.strip_prefix('-').filter(|group| !group.is_empty()) {
            let end = group.find(|c| valued.contains(c) || attached.contains(c));
            end.is_some_and(|at| at + 1 == group.len() && group.ends_with(|c| valued.contains(c)))
        } else {
            found.push(word);
            false
        };
        if takes_next {
            rest.next();
        }
    }
    found
}

/// Whether `pair` is what ip runs a program with, in a namespace or a VRF. It takes beginnings of
/// its words.
pub(super) fn is_ip_exec(pair: &[String]) -> bool {
    let object = is_short(&pair[0], "netns", 3) || is_short(&pair[0], "vrf", 1);
    object && is_short(&pair[1], "exec", 1)
}

fn special(program: &str, arguments: &[String]) -> Option<&'static str> {
    const WRITES: &str = "writes the file its second argument names";
    match program {
        "git" => git::hazard(arguments),
        // Its scripts have commands that run programs (e) and write files (w), anywhere.
        "sed" | "gsed" => Some("can run programs and write files from its script"),
        // Old style, without a dash: tar xIf PROGRAM ARCHIVE.
        "tar" => {
            let first = arguments.first().filter(|first| !first.starts_with('-'))?;
            let runs = first.contains(['I', 'F']);
            let writes = first.contains('g');
            runs.then_some("runs a program its options name")
                .or_else(|| writes.then_some("writes the file its options name"))
        }
        "ip" if arguments.windows(2).any(is_ip_exec) => Some(WRAPPER),
        "bridge" | "dcb" | "devlink" | "ip" | "rdma" | "tc" => {
            // Two dashes are one to it.
            let is_batch = arguments.iter().any(|word| {
                let option = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
                option.is_some_and(|option| is_short(option, "batch", 1))
            });
            is_batch.then_some("takes commands from a file")
        }
        // A name with a directory in it is a script of that directory.
        "invoke-rc.d" | "rc-service" | "service" => {
            let is_path = arguments.iter().any(|word| word.contains('/'));
            is_path.then_some(WRAPPER)
        }
        // Without `+` it is the time to set.
        "date" => {
            let valued = ["date", "file", "reference", "set"];
            let operands = operands(arguments, "dfrs", &valued, "I");
            let sets = operands.iter().any(|word| !word.starts_with('+'));
            sets.then_some("sets the clock")
        }
        "hostname" | "domainname" | "nisdomainname" | "ypdomainname" => {
            let sets = !operands(arguments, "F", &["file"], "").is_empty();
            sets.then_some("sets the system's name")
        }
        "uniq" => {
            let valued = ["check-chars", "skip-chars", "skip-fields"];
            (operands(arguments, "fsw", &valued, "").len() > 1).then_some(WRITES)
        }
        "openssl" => {
            // What it is given to read may be a key in such, wherever it reads one.
            let is_engine =
                |word: &String| word.to_ascii_lowercase().contains("org.openssl.engine:");
            let loads = arguments.iter().any(is_engine);
            loads.then_some("loads code its arguments name")
        }
        "zip" => {
            // Options of two letters stand in groups as well.
            let logs = |word: &String| word.starts_with('-') && word.contains("lf");
            let logs = arguments.iter().any(logs);
            logs.then_some("writes the file its options name")
        }
        "xxd" => {
            // Its options are words, and not grouped, and none stands behind what is none.
            let valued = "-c -cols -g -groupsize -l -len -n -name -o -offset -R -s -seek";
            let mut count = 0;
            let mut words = arguments.iter().map(String::as_str);
            while let Some(word) = words.next() {
                if count > 0 {
                    count += 1;
                } else if word == "--" {
                    count += words.by_ref().count();
                } else if valued.split(' ').any(|option| option == word) {
                    words.next();
                } else {
                    count += usize::from(!word.starts_with('-') || word == "-");
                }
            }
            (count > 1).then_some(WRITES)
        }
        _ => None,
    }
}
