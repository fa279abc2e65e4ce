//! What of a call and of an answer goes into the text index, as SQL functions: what is taken out again must be said as
//! it went in, so a function of a version of the tables never changes.

use std::borrow::Cow;
use std::fmt;

use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// How much of a call and of an answer is indexed, in characters. More would be paid for by
/// every commit that waits behind it, and by the file's size.
const CHARACTERS: usize = 4096;

/// Has SQL know `words_of_call` and `words_of_answer`.
pub(super) fn define(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function("words_of_call", 1, flags, |context| {
        Ok(of_call(text(context)?))
    })?;
    connection.create_scalar_function("words_of_answer", 1, flags, |context| {
        Ok(of_answer(text(context)?).into_owned())
    })
}

/// The one argument; NULL is no text.
fn text<'c>(context: &'c Context<'_>) -> rusqlite::Result<&'c str> {
    let text = context.get_raw(0).as_str_or_null();
    text.map(Option::unwrap_or_default)
        .map_err(|error| rusqlite::Error::UserFunctionError(error.into()))
}

/// What the caller said of a call that is kept as JSON, a value in a line: the names in it are every call's.
fn of_call(call: &str) -> String {
    let mut said = Said {
        text: String::new(),
        left: CHARACTERS,
    };
    // It ends where there is enough, and where something is too deep to be looked at.
    let _ = serde_json::Deserializer::from_str(call).deserialize_map(Record(&mut said));
    match apart(&said.text) {
        Cow::Borrowed(_) => said.text,
        Cow::Owned(apart) => apart,
    }
}

/// The beginning of an answer.
fn of_answer(content: &str) -> Cow<'_, str> {
    apart(beginning(content, CHARACTERS).0)
}

/// The first characters of a text, so many at the most, and how many they are.
fn beginning(text: &str, most: usize) -> (&str, usize) {
    if text.len() <= most && text.is_ascii() {
        return (text, text.len());
    }
    let mut count = 0;
    let end = text.char_indices().find(|_| {
        count += 1;
        count > most
    });
    match end {
        Some((end, _)) => (&text[..end], most),
        None => (text, count),
    }
}

/// Puts blanks around the characters of scripts that have none between their words, so that each is a word: FTS5 would take a
/// whole sentence for one. Whoever looks for several finds them in a row.
pub(super) fn apart(text: &str) -> Cow<'_, str> {
    if !text.contains(stands_alone) {
        return Cow::Borrowed(text);
    }
    let mut apart = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if stands_alone(character) {
            apart.extend([' ', character, ' ']);
        } else {
            apart.push(character);
        }
    }
    Cow::Owned(apart)
}

/// Whether it is Chinese, Japanese or Korean, by the blocks of Unicode.
fn stands_alone(character: char) -> bool {
    matches!(character,
        '\u{1100}'..='\u{11ff}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7ff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ffdc}'
        | '\u{20000}'..='\u{3ffff}')
}

/// What was said so far.
struct Said {
    text: String,
    /// How many characters more are wanted.
    left: usize,
}

impl Said {
    /// Adds a value, or as much of it as is wanted; fails when that is enough.
    fn add<E: serde::de::Error>(&mut self, value: &str) -> Result<(), E> {
        let (beginning, count) = beginning(value, self.left);
        self.text.push_str(beginning);
        self.text.push('\n');
        self.left -= count;
        match self.left {
            0 => Err(E::custom("that is enough")),
            _ => Ok(()),
        }
    }
}

/// Whose names they are.
#[derive(Clone, Copy)]
enum Names {
    /// The tool's or ours.
    Given,
    /// The caller's own, who may look for them.
    Chosen,
}

/// A call as it is kept.
struct Record<'s>(&'s mut Said);

impl<'de> Visitor<'de> for Record<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a call")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            let names = match &*name {
                "input" | "stdin" | "working_dir" | "workspace" | "session_id" | "tenant_id"
                | "tool_version" => Names::Given,
                "env" | "values" => Names::Chosen,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let said = &mut *self.0;
            members.next_value_seed(Values { said, names })?;
        }
        Ok(())
    }
}

/// All that is said in a value.
struct Values<'s> {
    said: &'s mut Said,
    names: Names,
}

impl Values<'_> {
    fn again(&mut self) -> Values<'_> {
        Values {
            said: self.said,
            names: self.names,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Values<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Values<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.said.add(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.said.add(itoa::Buffer::new().format(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.said.add(itoa::Buffer::new().format(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.said.add(&value.to_string())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element_seed(self.again())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            match self.names {
                Names::Given => {}
                Names::Chosen => self.said.add::<A::Error>(&name)?,
            }
            members.next_value_seed(self.again())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_what_its_caller_said() {
        let call = json!({
            "summary": "echo",
            "input": {"command": "echo one\ttwo\n\"three\"\nfour", "lines": [1, -2, 0.5, true, null], "more": {"file_path": "/etc/ä"}},
            "env": {"STAGE": "blue"},
            "risk_level": "low",
            "caller_groups": [100],
            "values": {"session": {"branch": "main"}},
        });
        let said = of_call(&call.to_string());
        let words: Vec<&str> = said.split_whitespace().collect();
        let expected = [
            "echo",
            "one",
            "two",
            "\"three\"",
            "four",
            "1",
            "-2",
            "0.5",
            "/etc/ä",
            "STAGE",
            "blue",
            "session",
            "branch",
            "main",
        ];
        let sorted = |mut words: Vec<&str>| {
            words.sort_unstable();
            words.join(" ")
        };
        assert_eq!(sorted(words), sorted(expected.to_vec()));
    }

    #[test]
    fn no_more_is_taken_than_is_indexed() {
        for word in ["x", "ä", "好"] {
            let long = word.repeat(5000);
            let call = json!({"input": {"a": long, "b": "behind"}}).to_string();
            for said in [of_call(&call), of_answer(&long).into_owned()] {
                assert_eq!(said.matches(word).count(), CHARACTERS, "{word}");
                assert!(!said.contains("behind"));
            }
        }
        let exact = "x".repeat(CHARACTERS);
        assert_eq!(of_answer(&exact), exact);
        assert_eq!(of_answer(&format!("{exact}y")), exact);
    }

    #[test]
    fn what_cannot_be_read_to_its_end_is_read_as_far_as_it_goes() {
        let deep = format!("{{\"input\":[\"first\",{}", "[".repeat(100_000));
        assert_eq!(of_call(&deep), "first\n");
        assert_eq!(of_call("null"), "");
        assert_eq!(of_call(""), "");
    }

    #[test]
    fn a_character_may_be_a_word() {
        for (text, expected) in [
            ("plain wörds", "plain wörds"),
            ("你好ab", " 你  好 ab"),
            ("カタ", " カ  タ "),
            ("한글", " 한  글 "),
            ("a𠮷b", "a 𠮷 b"),
        ] {
            assert_eq!(apart(text), expected);
        }
    }
}
