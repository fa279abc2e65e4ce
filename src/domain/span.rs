use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Correlation, Digest, ExecutionId};

/// The id of a span within its trace (W3C Trace Context, section 3.2.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SpanId([u8; 8]);

/// What is no span id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no span id: expected 16 lowercase hexadecimal digits, not all of them zero")]
pub struct InvalidSpanId;

impl SpanId {
    /// That of an execution: the random half of its id, which is not zero, for the variant of a UUID
    /// has a bit of it. What the execution starts finds it in `TRACEPARENT`.
    pub fn of(execution: ExecutionId) -> Self {
        let [.., a, b, c, d, e, f, g, h] = *execution.as_bytes();
        Self([a, b, c, d, e, f, g, h])
    }

    /// That of a part of an execution, the same whenever it is asked for and another for each part.
    pub fn of_part(execution: ExecutionId, name: &str, number: usize) -> Self {
        let number = (number as u64).to_be_bytes();
        let named = [execution.as_bytes(), name.as_bytes(), &number].concat();
        let [a, b, c, d, e, f, g, h, ..] = Digest::of(&named).0;
        Self([a, b, c, d, e, f, g, h])
    }

    /// Its eight bytes.
    pub fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl FromStr for SpanId {
    type Err = InvalidSpanId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 16 || !text.bytes().all(is_digit) {
            return Err(InvalidSpanId);
        }
        match u64::from_str_radix(text, 16) {
            Ok(0) | Err(_) => Err(InvalidSpanId),
            Ok(number) => Ok(Self(number.to_be_bytes())),
        }
    }
}

impl TryFrom<String> for SpanId {
    type Error = InvalidSpanId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SpanId> for String {
    fn from(id: SpanId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The span that a call is made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentSpan {
    /// Its id.
    pub id: SpanId,
    /// Whether its trace is recorded by whoever began it.
    pub is_sampled: bool,
}

/// Where an execution stands among all traces there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The execution's span in it.
    pub span_id: SpanId,
    /// Whether the trace is recorded: unless whoever began it says that it is not.
    pub is_sampled: bool,
}

impl SpanContext {
    /// That of an execution, which belongs to what is given; `caller` is that of the execution whose
    /// tool called, if one did. What belongs to no trace is one by itself, with all that comes of it.
    pub fn of(execution: ExecutionId, belongs: &Correlation, caller: Option<&Self>) -> Self {
        let own = || caller.map_or(*execution.as_bytes(), |caller| caller.trace_id);
        let named = belongs.trace_id.as_ref();
        Self {
            trace_id: named.map_or_else(own, |trace| trace.to_bytes()),
            span_id: SpanId::of(execution),
            is_sampled: belongs.parent.is_none_or(|parent| parent.is_sampled),
        }
    }

    /// The value of `TRACEPARENT` that names it as the parent (W3C Trace Context, section 3.2).
    pub fn traceparent(&self) -> String {
        let trace = u128::from_be_bytes(self.trace_id);
        let flags = u8::from(self.is_sampled);
        format!("00-{trace:032x}-{}-{flags:02x}", self.span_id)
    }

    /// It as the parent of what is called in it.
    pub fn as_parent(&self) -> ParentSpan {
        ParentSpan {
            id: self.span_id,
            is_sampled: self.is_sampled,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn id() -> impl Strategy<Value = ExecutionId> {
        // As a UUIDv7 is: version and variant are given.
        any::<[u8; 16]>().prop_map(|mut bytes| {
            bytes[6] = bytes[6] & 0x0f | 0x70;
            bytes[8] = bytes[8] & 0x3f | 0x80;
            ExecutionId::from_bytes(bytes)
        })
    }

    proptest! {
        #[test]
        fn a_span_id_is_never_zero_and_is_read_as_it_is_written(id in id()) {
            let span = SpanId::of(id);
            prop_assert_ne!(span.as_bytes(), &[0; 8]);
            prop_assert_eq!(span.to_string().parse(), Ok(span));
            prop_assert!(id.to_string().replace('-', "").ends_with(&span.to_string()));
        }

        #[test]
        fn parts_have_ids_of_their_own(one in id(), other in id()) {
            prop_assume!(one != other);
            let mut seen = HashSet::from([SpanId::of(one), SpanId::of(other)]);
            for id in [one, other] {
                for name in ["discovery", "validation", "execution"] {
                    for number in 0..8 {
                        let part = SpanId::of_part(id, name, number);
                        prop_assert_eq!(part, SpanId::of_part(id, name, number));
                        prop_assert!(seen.insert(part));
                    }
                }
            }
        }

        #[test]
        fn a_trace_is_that_which_is_named_or_that_of_the_outermost_call(
            outer in id(), inner in id(), name in "[a-z ]{1,40}", w3c in "[1-9a-f][0-9a-f]{31}",
        ) {
            let of = |trace: &str| Correlation {
                trace_id: trace.parse().ok(),
                ..Correlation::default()
            };
            let named = SpanContext::of(outer, &of(&w3c), None);
            let hex: String = named.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
            prop_assert_eq!(hex, w3c);
            let named = SpanContext::of(outer, &of(&name), None);
            prop_assert_eq!(&named.trace_id[..], &Digest::of(name.as_bytes()).0[..16]);
            let root = SpanContext::of(outer, &Correlation::default(), None);
            prop_assert_eq!(&root.trace_id, outer.as_bytes());
            let nested = SpanContext::of(inner, &Correlation::default(), Some(&root));
            prop_assert_eq!(nested.trace_id, root.trace_id);
            prop_assert_eq!(nested.span_id, SpanId::of(inner));
        }
    }

    #[test]
    fn what_is_no_span_id_is_refused() {
        for text in [
            "",
            "00f067aa0ba902b",
            "0000000000000000",
            "00F067AA0BA902B7",
            "+0f067aa0ba902b7",
        ] {
            assert_eq!(text.parse::<SpanId>(), Err(InvalidSpanId), "{text}");
        }
    }
}
