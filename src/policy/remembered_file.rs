//! The file that an approval leaves behind, as text: written here and read here.

use std::time::SystemTime;

use toml::de::DeTable;

use super::error::PolicyError;
use super::file::{File, Source, Value};
use super::remembered::Remembered;

const ITEM: &str =
    "expected `rule`, `uid`, `approval`, `approved_by` and `at`, and `called_by` of a tool's calls";

impl Remembered {
    /// The text of a file that remembers `approvals`. Where they were written down before does not
    /// matter.
    pub fn write(approvals: &[Self]) -> String {
        let head = "# Written by shelly-executord. To revoke it, remove this file and reload.\n";
        let tables = approvals.iter().map(|approval| {
            let rule = toml::Value::String(approval.rule.clone());
            let called_by = approval.called_by.clone().map(toml::Value::String);
            let called_by = called_by.map_or_else(String::new, |tool| format!("called_by = {tool}\n"));
            let at = humantime::format_rfc3339_seconds(approval.at);
            let Self { uid, approval, approved_by, .. } = approval;
            format!(
                "\n[[remembered]]\nrule = {rule}\nuid = {uid}\n{called_by}approval = \"{approval}\"\napproved_by = {approved_by}\nat = \"{at}\"\n"
            )
        });
        std::iter::once(head.to_owned()).chain(tables).collect()
    }

    /// The approvals that a file remembers, with their places in it. Whether their rules can be
    /// used is for [`Policy::with_remembered`](super::Policy::with_remembered) to say.
    ///
    /// # Errors
    /// Anything in it that is not understood completely, with file and line.
    pub fn read(source: Source<'_>) -> Result<Vec<Self>, PolicyError> {
        let file = File(source);
        let root = file.root()?;
        let mut approvals = Vec::new();
        for (key, value) in root.get_ref() {
            if key.get_ref() != "remembered" {
                let detail = "is no key of remembered approvals: expected `[[remembered]]`";
                let name = key.get_ref().as_ref();
                return Err(file.error(key.span().start, Some(name), detail.to_owned()));
            }
            for item in file.items("remembered", value)? {
                approvals.push(file.approval(item)?);
            }
        }
        match approvals.is_empty() {
            true => Err(file.error(
                0,
                None,
                "remembers nothing: expected `[[remembered]]`".into(),
            )),
            false => Ok(approvals),
        }
    }
}

impl File<'_> {
    fn approval(&self, item: &Value<'_>) -> Result<Remembered, PolicyError> {
        let at = item.span().start;
        let key = "remembered";
        let Some(table) = item.get_ref().as_table() else {
            let kind = item.get_ref().type_str();
            let detail = format!("holds an item of type {kind}: expected `[[remembered]]`");
            return Err(self.error(at, Some(key), detail));
        };
        let known = ["rule", "uid", "called_by", "approval", "approved_by", "at"];
        if let Some((key, _)) = (table.iter()).find(|(key, _)| !known.contains(&&**key.get_ref())) {
            let detail = format!("is no key of a remembered approval: {ITEM}");
            return Err(self.error(key.span().start, Some(key.get_ref()), detail));
        }
        let rule = self.member(at, table, "rule")?;
        let called_by = table.iter().find(|(key, _)| key.get_ref() == "called_by");
        let called_by = called_by.map(|(_, value)| self.text("called_by", value));
        let called_by = called_by.transpose()?;
        Ok(Remembered {
            rule: self.text("rule", rule)?.to_owned(),
            uid: self.uid(at, table, "uid")?,
            called_by: called_by.map(str::to_owned),
            approval: self.parsed(at, table, "approval", "the id of an approval", |text| {
                text.parse().ok()
            })?,
            approved_by: self.uid(at, table, "approved_by")?,
            at: self.parsed(at, table, "at", "a time as in 2026-11-22T09:00:00Z", time)?,
            source: Some(self.source(rule.span().start)),
        })
    }

    fn member<'v, 'i>(
        &self,
        at: usize,
        table: &'v DeTable<'i>,
        key: &str,
    ) -> Result<&'v Value<'i>, PolicyError> {
        let mut members = table.iter().filter(|(name, _)| name.get_ref() == key);
        members.next().map(|(_, value)| value).ok_or_else(|| {
            let detail = format!("a remembered approval without `{key}`: {ITEM}");
            self.error(at, Some("remembered"), detail)
        })
    }

    fn parsed<T>(
        &self,
        at: usize,
        table: &DeTable<'_>,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, PolicyError> {
        let value = self.member(at, table, key)?;
        let text = self.text(key, value)?;
        parse(text).ok_or_else(|| {
            let detail = format!("{text:?}: expected {expected}");
            self.error(value.span().start, Some(key), detail)
        })
    }

    fn uid(&self, at: usize, table: &DeTable<'_>, key: &str) -> Result<u32, PolicyError> {
        let value = self.member(at, table, key)?;
        let number = value.get_ref().as_integer();
        let uid =
            number.and_then(|number| u32::from_str_radix(number.as_str(), number.radix()).ok());
        uid.ok_or_else(|| {
            let detail = "expected the number of a user".to_owned();
            self.error(value.span().start, Some(key), detail)
        })
    }
}

fn time(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(text).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::domain::ApprovalId;

    fn read(text: &str) -> Result<Vec<Remembered>, PolicyError> {
        Remembered::read(Source {
            path: Path::new("a.toml"),
            text,
        })
    }

    #[test]
    fn what_was_written_is_read() {
        let approval = |rule: &str, uid| Remembered {
            rule: rule.to_owned(),
            uid,
            called_by: None,
            approval: ApprovalId::new(),
            approved_by: 0,
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            source: None,
        };
        let written = [
            approval("bash(command:echo \"a\\ 'b' \\\\\u{e9})", 1000),
            approval("bash(command:printf a\n'''\"\"\"b)", u32::MAX),
            Remembered {
                called_by: Some("deploy".to_owned()),
                ..approval("bash(command:true)", 1000)
            },
        ];
        let mut read = read(&Remembered::write(&written)).expect("valid");
        let lines: Vec<usize> = read
            .iter_mut()
            .filter_map(|one| one.source.take().map(|source| source.line))
            .collect();
        assert_eq!(read, written);
        assert_eq!(lines.first(), Some(&4));
    }

    #[test]
    fn anything_else_is_refused_with_its_line() {
        let whole = "[[remembered]]\nrule = \"x(a:b)\"\nuid = 1\napproval = \"01980000-0000-7000-8000-000000000000\"\napproved_by = 0\nat = \"2026-11-22T09:00:00Z\"\n";
        assert!(read(whole).is_ok());
        for (from, to, part) in [
            ("remembered", "remember", "a.toml:1: `remember`: is no key"),
            (
                "uid = 1\n",
                "",
                "a.toml:1: `remembered`: a remembered approval without `uid`",
            ),
            (
                "uid = 1",
                "uid = -1",
                "a.toml:3: `uid`: expected the number",
            ),
            (
                "uid = 1",
                "uid = \"root\"",
                "a.toml:3: `uid`: expected the number",
            ),
            (
                "uid = 1",
                "uid = 1\nuids = 2",
                "a.toml:4: `uids`: is no key",
            ),
            (
                "rule = \"x(a:b)\"",
                "rule = 3",
                "a.toml:2: `rule`: is of type integer",
            ),
            ("01980000", "x", "a.toml:4: `approval`: \"x-0000"),
            (
                "09:00:00Z",
                "nine",
                "a.toml:6: `at`: \"2026-11-22Tnine\": expected a time",
            ),
            (
                "[[remembered]]",
                "[remembered]",
                "`remembered`: is of type table: expected a list",
            ),
            (whole, "", "remembers nothing"),
            (
                whole,
                "remembered = [1]",
                "`remembered`: holds an item of type integer",
            ),
            ("rule", "rule =", "a.toml:2: "),
        ] {
            let said = read(&whole.replacen(from, to, 1))
                .expect_err(to)
                .to_string();
            assert!(said.contains(part), "{said:?} lacks {part:?}");
        }
    }
}
