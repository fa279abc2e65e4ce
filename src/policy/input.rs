//! The values of a call that rules are held against.

use serde_json::Value;

use super::glob::{Glob, Kind};
use super::judge::WRITE_TOOL;
use super::paths;
use super::question::{Question, Verdict};

/// The tools whose parameter [`SHELL_PARAMETER`] is shell text.
const SHELL_TOOLS: [&str; 2] = ["bash", "execute_command"];

/// The parameter that is shell text.
pub(super) const SHELL_PARAMETER: &str = "command";

pub(super) fn is_shell_tool(tool: &str) -> bool {
    SHELL_TOOLS.contains(&tool)
}

/// The tools whose deed a tool does as well: editing is writing, what answers a diff shows what
/// there was to read, and a command is one by whatever name.
pub(super) fn does_as_well(tool: &str) -> &'static [&'static str] {
    match tool {
        "edit_file" => &[WRITE_TOOL, "read_file"],
        WRITE_TOOL => &["read_file"],
        "execute_command" => &["bash"],
        _ => &[],
    }
}

/// The script of a call, where the tool is a shell.
pub(super) fn script<'a>(question: &Question<'a>) -> Option<&'a str> {
    if !is_shell_tool(question.tool) {
        return None;
    }
    question.input.get(SHELL_PARAMETER)?.as_str()
}

/// Whether a parameter of this name holds a path: then patterns are patterns of paths.
pub(super) fn is_path_parameter(name: &str) -> bool {
    let names = ["path", "paths", "file", "files", "dir", "directory", "cwd"];
    let ends = ["_path", "_paths", "_file", "_files", "_dir", "_directory"];
    names.contains(&name) || ends.iter().any(|end| name.ends_with(end))
}

/// Whether the parameter `name` matches. Of several values in it, one is enough to refuse, and
/// all must match to allow.
pub(super) fn matches(
    question: &Question<'_>,
    name: &str,
    kind: Kind,
    list: Verdict,
    glob: &Glob,
) -> bool {
    if kind == Kind::Path && question.paths.iter().any(|path| path.parameter == name) {
        return resolved_matches(question, name, list, glob);
    }
    let mut values = Vec::new();
    if let Some(value) = question.input.get(name) {
        leaves(value, &mut values);
    }
    let one = |value: &String| match kind {
        Kind::Path => path_matches(question, value, list, glob),
        Kind::Command | Kind::Text => glob.matches(value),
    };
    match list {
        Verdict::Allow => !values.is_empty() && values.iter().all(one),
        Verdict::Ask | Verdict::Deny => values.iter().any(one),
    }
}

/// The same where somebody has looked where the paths lead: as it was written and with its links
/// followed are two values of one parameter.
fn resolved_matches(question: &Question<'_>, name: &str, list: Verdict, glob: &Glob) -> bool {
    let named = question.paths.iter().filter(|path| path.parameter == name);
    let mut named = named.map(|path| paths::absolute(&path.path.to_string_lossy(), None));
    let is_known = |path: Option<String>| path.is_some_and(|path| glob.matches(&path));
    match list {
        Verdict::Allow => named.all(is_known),
        Verdict::Ask | Verdict::Deny => {
            named.any(|path| path.is_none_or(|path| glob.matches(&path)))
        }
    }
}

fn path_matches(question: &Question<'_>, value: &str, list: Verdict, glob: &Glob) -> bool {
    let path = paths::absolute(value, question.working_dir);
    match (list, path) {
        // Where it leads is not known: what may be refused is refused, nothing is allowed.
        (Verdict::Allow, None) => false,
        (Verdict::Ask | Verdict::Deny, None) => true,
        (Verdict::Allow, Some(path)) => !paths::goes_up(value) && glob.matches(&path),
        (Verdict::Ask | Verdict::Deny, Some(path)) => glob.matches(&path),
    }
}

/// Every value in `value` that is not a collection, as text.
fn leaves(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) => into.push(value.to_string()),
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, into)),
        Value::Object(members) => members.values().for_each(|member| leaves(member, into)),
    }
}
