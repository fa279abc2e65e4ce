//! Programs that run what is in a container: which of their commands do, and where what is run begins.

use super::super::glob::UNKNOWN_WORDS;
use super::operands::runs_nothing;
use super::text::is_known;

/// Those that go by docker's words.
const LIKE_DOCKER: &[&str] = &[
    "docker",
    "docker-compose",
    "nerdctl",
    "podman",
    "podman-compose",
    "podman-remote",
];

const LIKE_KUBECTL: &[&str] = &["kubectl", "oc"];

/// Options of which it is known whether they have a value in the next word.
struct Known {
    flags: &'static str,
    valued: &'static str,
    flags_long: &'static [&'static str],
    valued_long: &'static [&'static str],
}

/// Before a command.
#[rustfmt::skip]
const GLOBAL: Known = Known {
    flags: "D",
    valued: "Hclns",
    flags_long: &["debug", "insecure-skip-tls-verify", "match-server-version", "remote", "tls", "tlsverify"],
    valued_long: &[
        "address", "as", "as-group", "cgroup-manager", "cluster", "config", "connection", "context", "host", "kubeconfig",
        "log-level", "namespace", "request-timeout", "root", "runroot", "server", "storage-driver", "token", "url", "user",
    ],
};

/// Behind `compose`, before its command.
#[rustfmt::skip]
const COMPOSE: Known = Known {
    flags: "",
    valued: "fp",
    flags_long: &["all-resources", "compatibility", "dry-run"],
    valued_long: &["ansi", "env-file", "file", "parallel", "profile", "progress", "project-directory", "project-name"],
};

/// Behind `exec`.
const EXEC: Known = Known {
    flags: "Tdit",
    valued: "euw",
    flags_long: &["detach", "interactive", "no-tty", "privileged", "tty"],
    valued_long: &["detach-keys", "env", "env-file", "index", "user", "workdir"],
};

/// Behind `run`. What an `--entrypoint` names is run itself.
#[rustfmt::skip]
const RUN: Known = Known {
    flags: "PTdiqt",
    valued: "acehlmpuvw",
    flags_long: &[
        "build", "detach", "init", "interactive", "no-deps", "privileged", "publish-all", "quiet", "quiet-pull", "read-only", "remove-orphans",
        "rm", "service-ports", "sig-proxy", "tty", "use-aliases",
    ],
    valued_long: &[
        "add-host", "annotation", "attach", "cap-add", "cap-drop", "cidfile", "cpu-shares", "cpus", "cpuset-cpus", "device", "dns", "dns-search", "entrypoint", "env",
        "env-file", "expose", "gpus", "group-add", "hostname", "ip", "ipc", "label", "link", "log-driver", "log-opt", "mac-address", "memory",
        "memory-swap", "mount", "name", "network", "network-alias", "pid", "pids-limit", "platform", "publish", "pull", "restart", "runtime",
        "security-opt", "shm-size", "stop-signal", "stop-timeout", "sysctl", "tmpfs", "ulimit", "user", "userns", "uts", "volume", "volume-driver",
        "volumes-from", "workdir",
    ],
};

impl Known {
    /// The words behind options; `None` where there is an option that is not known. None of these programs takes a
    /// beginning of one for it.
    fn behind<'w>(&self, words: &'w [String]) -> Option<&'w [String]> {
        let mut rest = words;
        while let Some((word, after)) = rest.split_first() {
            let takes_next = if let Some(long) = word.strip_prefix("--") {
                let (name, has_value) = long
                    .split_once('=')
                    .map_or((long, false), |(name, _)| (name, true));
                let is_valued = self.valued_long.contains(&name);
                if !is_valued && !self.flags_long.contains(&name) {
                    return long.is_empty().then_some(after);
                }
                is_valued && !has_value
            } else if let Some(group) = word.strip_prefix('-').filter(|group| !group.is_empty()) {
                let end = group.find(|letter| !self.flags.contains(letter));
                let valued = end.map(|end| &group[end..]);
                if valued
                    .is_some_and(|group| !group.starts_with(|letter| self.valued.contains(letter)))
                {
                    return None;
                }
                valued.is_some_and(|group| group.len() == 1)
            } else {
                break;
            };
            rest = after.get(usize::from(takes_next)..).unwrap_or_default();
        }
        Some(rest)
    }
}

/// Words behind which a command of docker's stands.
const GROUPS: &[&str] = &[
    "compose",
    "config",
    "container",
    "context",
    "image",
    "manifest",
    "network",
    "node",
    "secret",
    "stack",
    "swarm",
    "system",
    "volume",
];

/// Commands that run nothing of what their words say.
#[rustfmt::skip]
const QUIET: &[&str] = &[
    "attach", "build", "commit", "connect", "convert", "cp", "diff", "disconnect", "down", "events", "export", "history", "images", "import", "info",
    "inspect", "kill", "load", "login", "logout", "logs", "ls", "pause", "port", "prune", "ps", "pull", "push", "rename", "restart", "rm", "rmi",
    "save", "search", "start", "stats", "stop", "tag", "top", "unpause", "up", "use", "version", "wait",
];

/// The same of kubectl's.
#[rustfmt::skip]
const QUIET_OF_KUBECTL: &[&str] = &[
    "annotate", "api-resources", "api-versions", "apply", "auth", "autoscale", "cluster-info", "cordon", "delete", "describe", "diff", "drain",
    "explain", "expose", "get", "label", "logs", "patch", "port-forward", "replace", "rollout", "scale", "taint", "top", "uncordon", "version", "wait",
];

/// What such a program is told to do, and the words behind that; `None` where that is not known.
fn told<'w>(name: &str, arguments: &'w [String]) -> Option<(&'w str, &'w [String])> {
    let mut rest = match name.ends_with("compose") {
        true => COMPOSE.behind(arguments)?,
        false => GLOBAL.behind(arguments)?,
    };
    loop {
        let (word, behind) = rest.split_first()?;
        if LIKE_DOCKER.contains(&name) && GROUPS.contains(&word.as_str()) {
            rest = COMPOSE.behind(behind)?;
            continue;
        }
        return is_known(word).then_some((word, behind));
    }
}

/// Whether the command is one of a container program's that runs nothing of what its words say.
pub(super) fn is_quiet(name: &str, arguments: &[String]) -> bool {
    let quiet = match name {
        name if LIKE_DOCKER.contains(&name) => QUIET,
        name if LIKE_KUBECTL.contains(&name) => QUIET_OF_KUBECTL,
        _ => return false,
    };
    // What may be no word, or several, may make a later one the command.
    let runs = |word: &String| matches!(word.as_str(), "exec" | "run" | "create" | "debug" | "--");
    let is_any = |word: &String| word.chars().eq([UNKNOWN_WORDS]);
    let may_run = arguments.iter().any(is_any) && arguments.iter().any(runs);
    !may_run && told(name, arguments).is_some_and(|(command, _)| quiet.contains(&command))
}

/// Whether what such a program is given to read is no script for anybody, if it starts no shell by itself ([`enters`]): it
/// describes what there is to be (`kubectl apply -f -`), or is for a program that runs nothing (`docker exec -i db psql`).
pub(super) fn reads_data(name: &str, arguments: &[String]) -> bool {
    let within = command_within(name, arguments).and_then(|at| arguments.get(at));
    LIKE_KUBECTL.contains(&name) && is_quiet(name, arguments)
        || within.is_some_and(|program| runs_nothing(program))
}

/// Where in `arguments` the command begins that is run in a container, if that is known.
pub(super) fn command_within(name: &str, arguments: &[String]) -> Option<usize> {
    let begin = behind_container(name, arguments)?;
    let names_program = |word: &String| word.starts_with(ENTRYPOINT);
    (!arguments[..begin].iter().any(names_program)).then_some(begin)
}

/// The option of `docker run` that names the program, whose arguments then stand behind the image.
pub(super) const ENTRYPOINT: &str = "--entrypoint";

/// Where in `arguments` those for the container begin, behind its name or that of its image, if that is known.
pub(super) fn behind_container(name: &str, arguments: &[String]) -> Option<usize> {
    let is_of_kubectl = LIKE_KUBECTL.contains(&name);
    if !is_of_kubectl && !LIKE_DOCKER.contains(&name) {
        return None;
    }
    let begin = match (told(name, arguments)?, is_of_kubectl) {
        (("exec" | "run", behind), true) => {
            let end = behind.iter().position(|word| word == "--")?;
            arguments.len() - behind.len() + end + 1
        }
        ((command, behind), false) => {
            let operands = match command {
                "exec" => EXEC.behind(behind)?,
                "create" | "run" => RUN.behind(behind)?,
                _ => return None,
            };
            // The container, or its image.
            let (named, command) = operands.split_first()?;
            if named.contains(UNKNOWN_WORDS) {
                return None;
            }
            arguments.len() - command.len()
        }
        _ => return None,
    };
    // Of those that may be none or many, which one is which is not known.
    let is_any = |word: &String| word.chars().eq([UNKNOWN_WORDS]);
    (!arguments[..begin].iter().any(is_any)).then_some(begin)
}

/// Whether the program runs what is in containers, whose own program may be a shell.
pub(super) fn is_one(name: &str) -> bool {
    LIKE_DOCKER.contains(&name) || LIKE_KUBECTL.contains(&name) || name == "crictl"
}

/// Whether the command of such a program may start a shell there that reads its input, without naming one.
pub(super) fn enters(name: &str, arguments: &[String]) -> bool {
    let has = |words: &[&str]| arguments.iter().any(|word| words.contains(&word.as_str()));
    let gives_input = |word: &String| {
        let short = word.starts_with('-') && !word.starts_with("--") && word.contains('i');
        short || word.starts_with("--interactive") || word.starts_with("--stdin")
    };
    let first = GLOBAL.behind(arguments).and_then(<[String]>::first);
    let composes = name.ends_with("compose") || first.is_some_and(|word| word == "compose");
    let takes_input = composes || has(&["compose"]) || arguments.iter().any(gives_input);
    let run = arguments.iter().position(|word| word == "run");
    // The image, or the service, alone: behind it stands a command.
    let runs_own = run.is_some_and(|at| {
        let behind = &arguments[at + 1..];
        if LIKE_KUBECTL.contains(&name) {
            // Its own options may stand behind that.
            return !behind.iter().any(|word| word == "--");
        }
        RUN.behind(behind)
            .is_none_or(|operands| operands.len() <= 1)
    });
    let starts = has(&["debug"]) || has(&["start"]) && !composes;
    has(&["attach"]) || takes_input && (runs_own || starts)
}
