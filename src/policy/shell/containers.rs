//! Programs that run what is in a container: which of their commands do, and where what is run begins.

use super::super::glob::UNKNOWN_WORDS;
use super::inner::Options;
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

/// Their options before a command that have a value in the next word.
const GLOBAL: &str = "Hclns";

#[rustfmt::skip]
const GLOBAL_LONG: &[&str] = &[
    "--address", "--as", "--as-group", "--cgroup-manager", "--cluster", "--config", "--connection", "--context", "--host", "--kubeconfig",
    "--log-level", "--namespace", "--request-timeout", "--root", "--runroot", "--server", "--storage-driver", "--token", "--url", "--user",
];

/// The same behind `compose`.
const COMPOSE: &str = "fp";

#[rustfmt::skip]
const COMPOSE_LONG: &[&str] = &[
    "--ansi", "--env-file", "--file", "--parallel", "--profile", "--progress", "--project-directory", "--project-name",
];

/// Options of `docker exec` and its like that have a value in the next word.
const EXEC: &str = "euw";

const EXEC_LONG: &[&str] = &[
    "--detach-keys",
    "--env",
    "--env-file",
    "--index",
    "--user",
    "--workdir",
];

/// The same of `docker run`, the usual ones.
const RUN: &str = "aceEhlmpuvw";

#[rustfmt::skip]
const RUN_LONG: &[&str] = &[
    "--add-host", "--cap-add", "--cap-drop", "--cpus", "--device", "--entrypoint", "--env", "--env-file", "--gpus", "--hostname",
    "--ipc", "--label", "--memory", "--mount", "--name", "--namespace", "--network", "--pid", "--platform", "--publish", "--pull",
    "--restart", "--security-opt", "--shm-size", "--tmpfs", "--ulimit", "--user", "--volume", "--workdir",
];

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

/// What such a program is told to do, and the words behind that; `None` where that is known only when it runs.
fn told<'w>(name: &str, words: &'w [String]) -> Option<(&'w str, &'w [String])> {
    let mut rest = match name.ends_with("compose") {
        true => Options::read(&words[1..], COMPOSE, COMPOSE_LONG),
        false => Options::read(&words[1..], GLOBAL, GLOBAL_LONG),
    };
    loop {
        let (word, behind) = rest.operands.split_first()?;
        if LIKE_DOCKER.contains(&name) && GROUPS.contains(&word.as_str()) {
            rest = Options::read(behind, COMPOSE, COMPOSE_LONG);
            continue;
        }
        return is_known(word).then_some((word, behind));
    }
}

/// Whether the command is one of a container program's that runs nothing of what its words say.
pub(super) fn is_quiet(name: &str, words: &[String]) -> bool {
    let quiet = match name {
        name if LIKE_DOCKER.contains(&name) => QUIET,
        name if LIKE_KUBECTL.contains(&name) => QUIET_OF_KUBECTL,
        _ => return false,
    };
    told(name, words).is_some_and(|(command, _)| quiet.contains(&command))
}

/// Where in `words` the command begins that is run in a container, if that is known.
pub(super) fn command_within(name: &str, words: &[String]) -> Option<usize> {
    let is_of_kubectl = LIKE_KUBECTL.contains(&name);
    if !is_of_kubectl && !LIKE_DOCKER.contains(&name) {
        return None;
    }
    let begin = match (told(name, words)?, is_of_kubectl) {
        (("exec" | "run", behind), true) => {
            let end = behind.iter().position(|word| word == "--")?;
            words.len() - behind.len() + end + 1
        }
        ((command, behind), false) => {
            let options = match command {
                "exec" => Options::read(behind, EXEC, EXEC_LONG),
                "create" | "run" => Options::read(behind, RUN, RUN_LONG),
                _ => return None,
            };
            // The container, or its image.
            let (named, command) = options.operands.split_first()?;
            if named.contains(UNKNOWN_WORDS) {
                return None;
            }
            words.len() - command.len()
        }
        _ => return None,
    };
    // Of those that may be none or many, which one is which is not known.
    let is_any = |word: &String| word.chars().eq([UNKNOWN_WORDS]);
    (!words[..begin].iter().any(is_any)).then_some(begin)
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
    let composes = name.ends_with("compose") || has(&["compose"]);
    let takes_input = composes || arguments.iter().any(gives_input);
    let run = arguments.iter().position(|word| word == "run");
    // The image, or the service, alone: behind it stands a command.
    let runs_own = run.is_some_and(|at| {
        let run = Options::read(&arguments[at + 1..], RUN, RUN_LONG);
        run.operands.len() <= 1
    });
    let starts = has(&["debug"]) || has(&["start"]) && !composes;
    has(&["attach"]) || takes_input && (runs_own || starts)
}
