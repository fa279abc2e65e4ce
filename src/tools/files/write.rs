use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::{Existing, Since, Target, Turn};
use super::text::Encoding;
use super::{Answer, FileError, Work, access, answer, diff, whole};
use crate::domain::{Digest, counted};

/// What it takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file: absolute, from `~/`, or relative to the working directory.
    pub(crate) file_path: String,
    /// What to write.
    pub(crate) content: String,
    /// "w" replaces what the file holds, "a" adds to its end.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// The encoding, such as "utf-8" or "latin1". When absent, "utf-8", or for "a" what the file
    /// has, if that can be told.
    pub(crate) encoding: Option<String>,
    /// Whether to make the directories that are missing.
    #[serde(default)]
    pub(crate) create_dirs: bool,
    /// The permissions, as octal digits such as "0644". When absent, those the file has, or
    /// "0644".
    pub(crate) permissions: Option<String>,
    /// Whether only to answer what would change.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// The digest that read_file answered: the file is left alone if it is not that any more.
    pub(crate) expected_digest: Option<String>,
}

/// What becomes of what a file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Mode {
    /// It is replaced.
    #[default]
    #[serde(rename = "w")]
    Overwrite,
    /// It is added to.
    #[serde(rename = "a")]
    Append,
}

/// What it answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Output {
    file_path: String,
    /// Whether there was no such file before.
    created: bool,
    /// Whether nothing was done but this answer.
    dry_run: bool,
    encoding: String,
    /// How many bytes were written.
    bytes_written: u64,
    /// The size of the file.
    size_bytes: u64,
    /// SHA-256 of the file; null when it is not known.
    digest: Option<String>,
    /// What changed, as `diff -u` says it; null when what was there is no text or too large to be read.
    diff: Option<String>,
    /// Attributes of the file that only the kernel may set, and flags (chattr) that the new file cannot have.
    not_kept: Vec<String>,
}

/// What was there before.
struct Old {
    /// `None` for a file too large to be read.
    bytes: Option<Vec<u8>>,
    /// `None` for one that is no text.
    text: Option<String>,
    encoding: Encoding,
}

impl Old {
    /// What is said where the text is what it was: the bytes may be others all the same.
    fn same_text(&self, new: &New, mode: Mode) -> String {
        let same = "the text is the same as before";
        let [before, now] = [self.encoding, new.encoding].map(Encoding::name);
        match mode {
            Mode::Overwrite if self.bytes.as_ref() == Some(&new.bytes) => format!("{same}\n"),
            Mode::Append => format!("{same}\n"),
            Mode::Overwrite if self.encoding == new.encoding => {
                format!(
                    "{same} but for bytes that are not {now}, in whose place \u{fffd} is written\n"
                )
            }
            Mode::Overwrite => format!("{same}, its encoding is not: {now} instead of {before}\n"),
        }
    }
}

/// Writes a file or adds to one.
pub(crate) fn write_file(work: &Work<'_>, input: &Input) -> Result<Answer, FileError> {
    let permissions = input.permissions.as_deref().map(permissions).transpose()?;
    let mut tries = 0;
    let mut directories = None;
    let _turn = match input.dry_run {
        true => None,
        false => Some(work.turn(&input.file_path)?),
    };
    loop {
        match write(work, input, permissions, &mut directories) {
            // Somebody had made the directories, and has removed them again: from now on no other call does.
            Err(error) if input.create_dirs && error.is_missing() && tries < access::TRIES => {
                tries += 1;
                if directories.is_none() {
                    directories = Some(work.turn_of_directories(&work.target(&input.file_path)?)?);
                }
            }
            done => return done,
        }
    }
}

fn write(
    work: &Work<'_>,
    input: &Input,
    permissions: Option<u32>,
    directories: &mut Option<Turn>,
) -> Result<Answer, FileError> {
    let mut target = work.target(&input.file_path)?;
    let makes_dirs = input.create_dirs && !input.dry_run && !target.missing.is_empty();
    if makes_dirs && directories.is_none() {
        *directories = Some(work.turn_of_directories(&target)?);
        target = work.target(&input.file_path)?;
    }
    if !target.missing.is_empty() && !input.create_dirs {
        let why = "has no directory to be in: set create_dirs to make it";
        return Err(FileError::refused(&input.file_path, why));
    }
    let old = match &target.existing {
        Some(existing) => Some(old(work, input, existing)?),
        None => None,
    };
    let bytes_before = old.as_ref().and_then(|old| old.bytes.as_deref());
    whole::check_digest(
        &input.file_path,
        input.expected_digest.as_deref(),
        bytes_before,
    )?;
    let new = New::of(input, old.as_ref())?;
    let is_append = input.mode == Mode::Append && target.existing.is_some();
    if is_append && permissions.is_some() {
        let why = "cannot be set with mode \"a\" for a file that is there";
        return Err(FileError::input("permissions", why));
    }
    let before = target
        .existing
        .as_ref()
        .map_or(0, |existing| existing.found.size());
    let size = if is_append { before } else { 0 } + new.bytes.len() as u64;
    let most = work.access.max_file_size;
    if size > most {
        let why =
            format!("would have {size} bytes: expected at most {most} ([files] max_file_size_mb)");
        return Err(FileError::refused(&input.file_path, why));
    }
    let mut output = output(input, &target, &new);
    output.diff = difference(work, &input.file_path, (old.as_ref(), &new));
    output.size_bytes = size;
    if !input.dry_run {
        let made = target.make_dirs()?;
        match &target.existing {
            Some(existing) if is_append => {
                let since = match input.expected_digest {
                    Some(_) => Since::Read,
                    None => Since::Found,
                };
                let now = target.append(existing, &new.bytes, since, work.should_stop)?;
                if now != before {
                    // Somebody else has added to it, too: what it holds is not known.
                    output.size_bytes = now + new.bytes.len() as u64;
                    output.digest = None;
                }
            }
            _ => {
                let new = access::New {
                    bytes: &new.bytes,
                    permissions,
                    old: bytes_before,
                };
                output.not_kept = target.replace(&new, work.should_stop)?;
            }
        }
        made.keep();
    }
    let content = content(&output, input.mode, (old.as_ref(), &new));
    Ok(answer(content, &output))
}

fn old(work: &Work<'_>, input: &Input, existing: &Existing) -> Result<Old, FileError> {
    let found = &existing.found;
    let bytes = match found.size() <= work.access.max_file_size {
        true => Some(whole::read(work, found)?),
        false => None,
    };
    let named = match input.mode {
        Mode::Append => input.encoding.as_deref(),
        // Its own encoding, to show what it was; the new one may be another.
        Mode::Overwrite => None,
    };
    let head = bytes.as_deref().unwrap_or_default();
    let encoding = match named.filter(|_| found.size() == 0) {
        // There is no mark that could show it.
        Some(label) => Some(Encoding::named(label)?),
        None => whole::encoding(work, found, (named, head))?,
    };
    let decoded = encoding
        .zip(bytes.as_deref())
        .map(|(encoding, bytes)| (encoding, encoding.decode(bytes)));
    if let Some((encoding, decoded)) = &decoded
        && decoded.invalid_bytes > 0
        && input.mode == Mode::Append
        && input.encoding.is_none()
        && !(input.content.is_ascii() && encoding.has_byte_lines())
    {
        let (count, name) = (decoded.invalid_bytes, encoding.name());
        let count = counted(count, "byte that is", "bytes that are");
        let why = format!(
            "has {count} not {name}, so that its encoding cannot be told: name that of what is to be added"
        );
        return Err(FileError::refused(&input.file_path, why));
    }
    let text = decoded.map(|(_, decoded)| decoded.text);
    Ok(Old {
        text,
        encoding: encoding.unwrap_or(Encoding::UTF_8),
        bytes,
    })
}

/// What is written.
struct New {
    encoding: Encoding,
    bytes: Vec<u8>,
    /// SHA-256 of the file then.
    digest: Option<Digest>,
    /// Its text then.
    text: Option<String>,
}

impl New {
    fn of(input: &Input, old: Option<&Old>) -> Result<Self, FileError> {
        if let (Mode::Append, Some(old)) = (input.mode, old) {
            let mut bytes = match old.bytes.as_deref() {
                Some([]) => old.encoding.encode("")?,
                Some(_) | None => Vec::new(),
            };
            old.encoding.encode_part(&input.content, &mut bytes)?;
            let whole = old
                .bytes
                .as_ref()
                .map(|old| [old.as_slice(), &bytes].concat());
            return Ok(Self {
                encoding: old.encoding,
                digest: whole.as_deref().map(Digest::of),
                text: old
                    .text
                    .as_ref()
                    .map(|old| format!("{old}{}", input.content)),
                bytes,
            });
        }
        let named = input.encoding.as_deref().map(Encoding::named).transpose()?;
        let named = named.unwrap_or(Encoding::UTF_8);
        let encoding = old.map_or(named, |old| named.in_order_of(old.encoding));
        let bytes = encoding.encode(&input.content)?;
        Ok(Self {
            encoding,
            digest: Some(Digest::of(&bytes)),
            text: Some(input.content.clone()),
            bytes,
        })
    }
}

/// What changes, where both are text.
fn difference(work: &Work<'_>, path: &str, (old, new): (Option<&Old>, &New)) -> Option<String> {
    let old = match old {
        None => None,
        Some(old) => Some(old.text.as_deref()?),
    };
    let new = new.text.as_deref()?;
    Some(diff::unified(path, (old, new), work.secrets))
}

fn output(input: &Input, target: &Target, new: &New) -> Output {
    Output {
        file_path: input.file_path.clone(),
        created: target.existing.is_none(),
        dry_run: input.dry_run,
        encoding: new.encoding.name(),
        bytes_written: new.bytes.len() as u64,
        size_bytes: 0,
        digest: new.digest.map(|digest| digest.to_string()),
        diff: None,
        not_kept: Vec::new(),
    }
}

fn content(output: &Output, mode: Mode, (old, new): (Option<&Old>, &New)) -> String {
    let path = &output.file_path;
    let bytes = |count| counted(count, "byte", "bytes");
    let (count, size) = (bytes(output.bytes_written), bytes(output.size_bytes));
    let (prefix, wrote) = match output.dry_run {
        true => ("dry run, nothing is changed; would have ", "written"),
        false => ("", "wrote"),
    };
    let mut content = match (output.created, mode) {
        (true, _) => format!("{prefix}created `{path}` ({size})\n"),
        (false, Mode::Overwrite) => format!("{prefix}{wrote} `{path}` ({size})\n"),
        (false, Mode::Append) => {
            format!("{prefix}added {count} to `{path}` ({size})\n")
        }
    };
    match (output.diff.as_deref(), old) {
        (None, Some(Old { bytes: None, .. })) => {
            content.push_str("what was there before is too large to be read: there is no diff\n");
        }
        (None, _) => content.push_str("what was there before is no text: there is no diff\n"),
        (Some(""), Some(old)) => content.push_str(&old.same_text(new, mode)),
        (Some(diff), _) => content.push_str(diff),
    }
    for name in &output.not_kept {
        content.push_str(&format!("the attribute {name} could not be kept\n"));
    }
    content
}

/// Reads "644" or "0644".
fn permissions(text: &str) -> Result<u32, FileError> {
    let is_octal = text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let bits = u32::from_str_radix(text, 8).ok();
    bits.filter(|bits| is_octal && (3..=4).contains(&text.len()) && *bits <= 0o777)
        .ok_or_else(|| {
            let why = format!(
                "{text:?} is none: expected three or four octal digits up to \"0777\", as in \"0644\""
            );
            FileError::input("permissions", why)
        })
}
