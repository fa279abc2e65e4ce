//! What programs and prompts need besides.

use std::path::{Component, Path, PathBuf};

use super::fields::Fields;
use super::files;
use super::manifest::Place;
use super::skill::{Command, Mode, Model};
use crate::tools::expression::Template;

/// The longest prompt that is read: many times what a model takes well.
const PROMPT_LIMIT: u64 = 256 << 10;
/// How many words may end an answer.
const STOP_LIMIT: usize = 16;

/// `"command": ["./run", …]`.
pub(super) fn code(fields: &mut Fields<'_>, place: &Place<'_>) -> Option<Mode> {
    fields.need("command")?;
    let mut args = fields.texts("command")?;
    if args.iter().any(|arg| arg.contains('\0')) {
        fields.wrong("command", "holds a NUL character, which no argument can");
        return None;
    }
    if args.is_empty() {
        fields.wrong("command", "is empty: expected a program and its arguments");
        return None;
    }
    let program = args.remove(0);
    match resolve(&program, place) {
        Ok(program) => Some(Mode::Code(Command { program, args })),
        Err(detail) => {
            fields.wrong("command", format!("names {program:?}, which {detail}"));
            None
        }
    }
}

fn resolve(program: &str, place: &Place<'_>) -> Result<PathBuf, String> {
    let path = Path::new(program);
    if path.is_absolute() {
        return files::program(path).map(|()| path.to_owned());
    }
    if !program.starts_with("./") {
        return Err(
            "is no path: expected \"./name\" in the skill's directory, or an absolute path"
                .to_owned(),
        );
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("leads out of its directory: expected no `..`".to_owned());
    }
    place.dir.program(path)?;
    let relative: PathBuf = path
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect();
    Ok(place.path.join(relative))
}

/// `"prompt": "prompt.md"` and how the model is asked.
pub(super) fn llm(fields: &mut Fields<'_>, place: &mut Place<'_>) -> Option<Mode> {
    let model = model(fields);
    let file = fields.need_text("prompt")?;
    let text = match place.dir.read(Path::new(file), PROMPT_LIMIT) {
        Ok(text) => text,
        Err(detail) => {
            fields.wrong("prompt", format!("names {file:?}, which {detail}"));
            return None;
        }
    };
    let mut wrong =
        |line, detail: String| place.elsewhere.push((file.to_owned(), Some(line), detail));
    let prompt = match Template::text(&text) {
        Ok(prompt) => prompt,
        Err(error) => {
            wrong(error.line, error.to_string());
            return None;
        }
    };
    for (_, expression) in prompt.expressions() {
        for name in expression.names().iter().filter(|name| *name != "input") {
            wrong(
                expression.line(),
                format!("`{name}` is a missing value: there is `input`"),
            );
        }
    }
    Some(Mode::Llm {
        prompt,
        model: model?,
    })
}

fn model(fields: &mut Fields<'_>) -> Option<Model> {
    let Some(value) = fields.take("model") else {
        return Some(Model::default());
    };
    let mut inner = match Fields::of(&fields.at("model"), value) {
        Ok(inner) => inner,
        Err(_) => {
            fields.wrong("model", "is no object");
            return None;
        }
    };
    let name = inner.text("name").map(str::to_owned);
    let max_tokens = inner.take("max_tokens").and_then(|value| {
        let tokens = value
            .as_u64()
            .filter(|tokens| (1..=10_000_000).contains(tokens));
        if tokens.is_none() {
            inner.wrong(
                "max_tokens",
                "is out of range: expected a whole number from 1 to 10000000",
            );
        }
        tokens
    });
    let temperature = inner.number("temperature", (0.0, 2.0));
    let top_p = inner.number("top_p", (0.0, 1.0));
    let stop = inner.texts("stop").unwrap_or_default();
    if stop.len() > STOP_LIMIT {
        inner.wrong(
            "stop",
            format!("holds {} texts: expected at most {STOP_LIMIT}", stop.len()),
        );
    }
    let faults = inner.finish("`model`");
    let holds = faults.is_empty();
    fields.faults.extend(faults);
    holds.then_some(Model {
        name,
        max_tokens,
        temperature,
        top_p,
        stop,
    })
}
