use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Access, FileError, Work, edit, list, read, search, write};
use crate::config::ExecutorConfig;
use crate::domain::{
    Call, Caller, Calls, ExecutorError, Judgement, RiskLevel, ToolDefinition, ToolDetails, Verdict,
    Violation,
};
use crate::tools::{
    Answer, Confinement, Context, Place, Produced, Resolved, Stopped, ToolImpl, UseOfIt, WorkOf,
    schema_of, shell,
};

/// A file tool that takes an `I`.
pub(in crate::tools) struct FileTool<I> {
    name: &'static str,
    description: &'static str,
    /// The member of the input that is a path.
    parameter: &'static str,
    reach: Reach,
    does: fn(&Work<'_>, &I) -> Result<Answer, FileError>,
    output_schema: fn() -> Value,
}

/// What of a path a call touches that the policy judged.
#[derive(Clone, Copy)]
enum Reach {
    /// What is there.
    Itself,
    /// That, and whatever is in it.
    Below,
    /// The same, and what a file holds that is there instead of a directory.
    Contents,
}

pub(in crate::tools) const READ_FILE: FileTool<read::Input> = FileTool {
    name: "read_file",
    description: "Read a text file, or some of its lines (start_line, end_line), or bytes of a \
                  large one (offset, length). The encoding is detected. The output's digest makes \
                  a later write_file or edit_file notice changes by others.",
    parameter: "file_path",
    reach: Reach::Itself,
    does: read::read_file,
    output_schema: schema_of::<read::Output>,
};

pub(in crate::tools) const WRITE_FILE: FileTool<write::Input> = FileTool {
    name: "write_file",
    description: "Write a text file: replace what it holds, or add to its end (mode \"a\"). The \
                  file is replaced whole or not at all, and keeps its owner and permissions. \
                  Answers the difference; with dry_run, only that.",
    parameter: "file_path",
    reach: Reach::Itself,
    does: write::write_file,
    output_schema: schema_of::<write::Output>,
};

pub(in crate::tools) const EDIT_FILE: FileTool<edit::Input> = FileTool {
    name: "edit_file",
    description: "Replace text in a file. The pattern must match exactly once, unless replace_all \
                  is set: give enough of the lines around. Line endings and encoding are kept. \
                  Answers the difference; with dry_run, only that.",
    parameter: "file_path",
    reach: Reach::Itself,
    does: edit::edit_file,
    output_schema: schema_of::<edit::Output>,
};

pub(in crate::tools) const LIST_DIR: FileTool<list::Input> = FileTool {
    name: "list_dir",
    description: "List a directory, or several levels of it: permissions, size, time of the last \
                  change and name of each entry. Symbolic links are shown and not followed.",
    parameter: "dir_path",
    reach: Reach::Below,
    does: list::list_dir,
    output_schema: schema_of::<list::Output>,
};

pub(in crate::tools) const SEARCH_FILES: FileTool<search::Input> = FileTool {
    name: "search_files",
    description: "Search the files of a directory for a regular expression, as ripgrep does: \
                  lines as path:number:text. Leaves out binary and hidden files and what \
                  .gitignore names.",
    parameter: "dir_path",
    reach: Reach::Contents,
    does: search::search_files,
    output_schema: schema_of::<search::Output>,
};

impl<I: DeserializeOwned + JsonSchema + Send + 'static> ToolImpl for FileTool<I> {
    fn name(&self) -> &str {
        self.name
    }

    fn details(&self, config: &ExecutorConfig) -> ToolDetails {
        let definition = ToolDefinition {
            name: self.name.to_owned(),
            description: self.description.to_owned(),
            input_schema: schema_of::<I>(),
        };
        ToolDetails {
            output_schema: Some((self.output_schema)()),
            ..ToolDetails::built_in(definition, "files", config.default_timeout)
        }
    }

    fn is_enabled(&self, config: &ExecutorConfig) -> bool {
        config.files.enabled
    }

    fn subject(&self, input: &Value) -> String {
        match input.get(self.parameter) {
            Some(Value::String(path)) => path.clone(),
            _ => input.to_string(),
        }
    }

    fn check(&self, input: &Value) -> Vec<Violation> {
        let path = input.get(self.parameter).and_then(Value::as_str);
        let is_none = path.is_some_and(|path| path.is_empty() || path.contains('\0'));
        let violation = || Violation {
            pointer: format!("/{}", self.parameter),
            detail: "is empty or holds a NUL character, which no path does".to_owned(),
        };
        is_none.then(violation).into_iter().collect()
    }

    fn may_run_its_input(&self) -> bool {
        false
    }

    fn names_paths(&self, input: &Value) -> bool {
        input.get(self.parameter).is_some_and(Value::is_string)
    }

    /// What is judged is where the path leads now; `run` finds out whether it still does.
    fn resolve(&self, call: &mut Call, place: &Place) -> Result<Vec<Resolved>, Vec<Violation>> {
        let Some(Value::String(path)) = call.input.get(self.parameter) else {
            return Ok(Vec::new());
        };
        let absolute = place.absolute(path).map_err(|detail| {
            let pointer = format!("/{}", self.parameter);
            vec![Violation { pointer, detail }]
        })?;
        let is_directory = path.ends_with('/');
        // Absolute from now on: a replay is relative to nothing else.
        let absolute: PathBuf = absolute.components().collect();
        let mut written = absolute.to_string_lossy().into_owned();
        if is_directory && written != "/" {
            written.push('/');
        }
        call.input[self.parameter] = written.into();
        let real = real(&absolute);
        Ok(vec![Resolved {
            parameter: self.parameter.to_owned(),
            use_of_it: self.reach.use_of(&real),
            real,
            absolute,
        }])
    }

    fn refuses(
        &self,
        call: &Call,
        resolved: &[Resolved],
        caller: &Caller,
        config: &ExecutorConfig,
    ) -> Option<Judgement> {
        let access = Access::new(config, &Place::of(call, caller, config));
        let mut paths = resolved.iter();
        let error = paths.find_map(|path| match self.reach {
            Reach::Itself => access.refuses_file(&path.absolute, &path.real),
            Reach::Below | Reach::Contents => access.refuses(&path.absolute, &path.real),
        })?;
        Some(refusal(&error))
    }

    fn confinement(&self) -> Confinement {
        Confinement::Impossible
    }

    fn run<'a>(
        &'a self,
        call: &'a Call,
        context: Context<'a>,
    ) -> BoxFuture<'a, Result<Produced, ExecutorError>> {
        async move {
            let input: I = shell::input(call, &context)?;
            let (does, reach) = (self.does, self.reach);
            let judged = context.resolved.first().cloned();
            let (caller, config) = (context.caller.clone(), context.config.clone());
            let (asked, calls) = (call.clone(), Arc::clone(&context.calls));
            let live = Arc::clone(&context.live);
            let done = context.work(WorkOf::call(call), move |stop| {
                let place = Place::of(&asked, &caller, &config);
                let access = Access::new(&config, &place);
                let work = Work {
                    access: &access,
                    should_stop: &|| stop.check().is_err(),
                    permits: &|real| {
                        let permits = reach.permits(judged.as_ref(), real, &*calls);
                        if permits {
                            // What is refused has not.
                            live.mark_started();
                        }
                        permits
                    },
                    secrets: live.secrets(),
                };
                match does(&work, &input) {
                    Err(FileError::Stopped) => Err(Stopped),
                    done => Ok(done),
                }
            });
            let answer = match done.await? {
                Err(error @ FileError::Denied { .. }) => {
                    return Err(denied(call, &context, &error));
                }
                Ok(answer) => answer,
                Err(error) => Answer::failed(error.to_string()),
            };
            context.live.mark_started();
            Ok(Produced::Answered(answer))
        }
        .boxed()
    }
}

impl Reach {
    /// What a call does with what is at `real`.
    fn use_of(self, real: &Path) -> UseOfIt {
        match self {
            Self::Contents if real.is_file() => UseOfIt::ReadsFile,
            Self::Contents | Self::Below | Self::Itself => UseOfIt::Named,
        }
    }

    /// Whether the policy permits what is at `real`, where `judged` was what it was asked about.
    fn permits(self, judged: Option<&Resolved>, real: &Path, calls: &dyn Calls) -> bool {
        judged.is_some_and(|judged| match self {
            Self::Itself => real == judged.real,
            // What is in a directory may be the subject of a rule of its own, and so may a file that is
            // there by now in its place.
            Self::Below | Self::Contents => {
                let is_judged = judged.use_of_it == UseOfIt::ReadsFile || real.is_dir();
                let is_itself = real == judged.real && is_judged;
                real.starts_with(&judged.real) && (is_itself || calls.may_read(real))
            }
        })
    }
}

/// Where a path leads; of what is not there, as far as it does.
fn real(path: &Path) -> PathBuf {
    let mut missing: Vec<OsString> = Vec::new();
    for above in path.ancestors() {
        if let Ok(mut real) = above.canonicalize() {
            real.extend(missing.iter().rev());
            return real;
        }
        missing.extend(above.file_name().map(OsString::from));
    }
    path.to_owned()
}

fn denied(call: &Call, context: &Context<'_>, error: &FileError) -> ExecutorError {
    ExecutorError::PermissionDenied {
        tool_name: call.tool.clone(),
        input_summary: context.summary.clone(),
        judgement: Box::new(refusal(error)),
    }
}

fn refusal(error: &FileError) -> Judgement {
    Judgement {
        verdict: Verdict::Deny,
        rule: None,
        source: None,
        segment: None,
        reason: error.to_string(),
        suggest: None,
        would_change: "[files] of executor.toml says what the file tools may touch".to_owned(),
        risk_level: RiskLevel::Trusted,
        risk_rule: None,
        workspace: None,
        remember_rules: Vec::new(),
    }
}
