//! Bodies that are one JSON object: bytes in, a struct or what is wrong with which member out. Stricter than serde by
//! itself, which takes an array for an object and `{"word": null}` for a word.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::Error as AnyError;
use serde::de::{DeserializeOwned, Error, IntoDeserializer, Visitor};
use serde::{Deserialize, Deserializer};

use crate::domain::with_meant;

/// What a body should be.
pub(super) struct Shape {
    /// Without an article.
    pub(super) name: &'static str,
    /// What is said where one was expected.
    pub(super) expected: &'static str,
}

impl Shape {
    /// Reads one. The error says what is wrong and, where that is known, where.
    pub(super) fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, String> {
        let expected = self.expected;
        // Serde would take the members in their order from an array, too.
        match body.trim_ascii_start().first() {
            Some(b'{') => {}
            Some(_) => return Err(format!("the body is no JSON object: {expected}")),
            None => return Err(format!("the body is empty: {expected}")),
        }
        serde_json::from_slice(body).map_err(|error| self.locate::<T>(body, &error))
    }

    /// Says what is wrong with a body, and where: to keep track of that costs half as much again, and most are right.
    fn locate<T: DeserializeOwned>(&self, body: &[u8], error: &serde_json::Error) -> String {
        let mut deserializer = serde_json::Deserializer::from_slice(body);
        let located = serde_path_to_error::deserialize::<_, T>(&mut deserializer);
        let Some(located) = located.err() else {
            // It is what stands behind it.
            return self.describe("", error);
        };
        let member = located.path().to_string();
        let at = match member.as_str() {
            "." => String::new(),
            member => format!("`{member}`: "),
        };
        self.describe(&at, located.inner())
    }

    fn describe(&self, at: &str, error: &serde_json::Error) -> String {
        if !error.is_data() {
            return format!("the body is no valid JSON: {error}");
        }
        let mut why = with_meant(error.to_string());
        if why.starts_with("missing field") {
            why = format!("{why}; {}", self.expected);
        }
        format!("the body is no {}: {at}{why}", self.name)
    }
}

/// Reads a word of an enum's.
pub(super) fn word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(Word(PhantomData))
}

/// The same of a member that may be null.
pub(super) fn optional_word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    struct Given<T>(T);

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            word(deserializer).map(Self)
        }
    }

    let given = Option::<Given<T>>::deserialize(deserializer)?;
    Ok(given.map(|Given(word)| word))
}

struct Word<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Word<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Which words there are, serde says of one that is none.
        let none = T::deserialize(IntoDeserializer::<AnyError>::into_deserializer(""));
        let said = none.err().map(|error| error.to_string());
        let words = said
            .as_deref()
            .and_then(|said| said.split_once("expected "));
        formatter.write_str(words.map_or("a word", |(_, words)| words))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
        T::deserialize(word.into_deserializer())
    }
}
