use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::{Error as Unfit, StrDeserializer};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, Unexpected, Visitor};

/// One of the words of `T`. Of a value of another type the parser itself says that it expected "string or table", and
/// names no word.
pub(super) fn word<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    struct Word<T>(PhantomData<T>);

    impl<T: DeserializeOwned> Visitor<'_> for Word<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            // As it is said of a word that is none of them.
            let refused = T::deserialize(StrDeserializer::<Unfit>::new("")).err();
            let refused = refused.map(|error| error.to_string()).unwrap_or_default();
            let words = refused.split_once("expected ").map(|(_, words)| words);
            f.write_str(words.unwrap_or("a word in quotes"))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            T::deserialize(StrDeserializer::new(text))
        }
    }

    deserializer.deserialize_str(Word(PhantomData)).map(Some)
}

/// An integer from `MIN` to `MAX`, refused by the parser itself so that the refusal carries the
/// place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bounded<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Bounded<MIN, MAX> {
    pub(super) fn get(self) -> u64 {
        self.0
    }

    /// For counts, whose `MAX` is far below `u32::MAX`.
    pub(super) fn number(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    pub(super) fn secs(self) -> Duration {
        Duration::from_secs(self.0)
    }

    pub(super) fn millis(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// For sizes of buffers in memory, whose `MAX` is far below `usize::MAX`.
    pub(super) fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InRange<const MIN: u64, const MAX: u64>;

        impl<const MIN: u64, const MAX: u64> Visitor<'_> for InRange<MIN, MAX> {
            type Value = u64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an integer from {MIN} to {MAX}")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
                u64::try_from(value)
                    .ok()
                    .filter(|value| (MIN..=MAX).contains(value))
                    .ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
                Some(value)
                    .filter(|value| (MIN..=MAX).contains(value))
                    .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
            }
        }

        deserializer.deserialize_u64(InRange::<MIN, MAX>).map(Self)
    }
}
