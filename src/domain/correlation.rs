use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Digest, ExecutionId, InvalidCall, ParentSpan, SpanId};

/// The longest name that a caller may give, in bytes.
pub(crate) const LONGEST_NAME: usize = 256;

/// What a call belongs to, in its caller's names: it goes wherever something is told of the call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Correlation {
    /// The trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// On whose behalf the caller calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The span it is made in, where its trace has one.
    #[serde(skip)]
    pub parent: Option<ParentSpan>,
}

impl Correlation {
    /// The variables in which [`Self::variables`] tells a process of it.
    pub const VARIABLES: [&str; 3] = ["SHELLY_TRACE_ID", "SHELLY_TENANT_ID", "SHELLY_SESSION_ID"];

    /// Whether there is nothing to be told of it.
    pub fn is_empty(&self) -> bool {
        self.trace_id.is_none() && self.tenant_id.is_none() && self.session_id.is_none()
    }

    /// What a process of the execution finds in its environment.
    pub fn variables(&self) -> Vec<(&'static str, &str)> {
        let [trace, tenant, session] = Self::VARIABLES;
        let all = [
            (trace, self.trace_id.as_ref().map(TraceId::as_str)),
            (tenant, self.tenant_id.as_deref()),
            (session, self.session_id.as_deref()),
        ];
        let given = |(name, value): (_, Option<_>)| value.map(|value| (name, value));
        all.into_iter().filter_map(given).collect()
    }

    /// `TRACEPARENT` for what the execution starts, of which it is the parent; `None` outside of a
    /// W3C trace.
    pub fn traceparent(&self, execution: ExecutionId) -> Option<String> {
        let trace = self.trace_id.as_ref()?.w3c()?;
        // Whoever gives a call a trace wants to see what becomes of it, unless it says otherwise.
        let is_sampled = self.parent.is_none_or(|parent| parent.is_sampled);
        let (parent, flags) = (SpanId::of(execution), u8::from(is_sampled));
        Some(format!("00-{trace}-{parent}-{flags:02x}"))
    }
}

/// The trace a call belongs to: a W3C trace id (32 lowercase hexadecimal digits, not all zero), or
/// any other name of at most 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct TraceId(String);

impl TraceId {
    /// The digits of a W3C trace id; `None` when it is another name.
    pub fn w3c(&self) -> Option<&str> {
        is_w3c(&self.0).then_some(self.0.as_str())
    }

    /// What it is, whichever.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As sixteen bytes: the digits of a W3C trace id, the first half of the SHA-256 of another name.
    pub fn to_bytes(&self) -> [u8; 16] {
        let number = self.w3c().map(|digits| u128::from_str_radix(digits, 16));
        if let Some(Ok(number)) = number {
            return number.to_be_bytes();
        }
        let Digest(digest) = Digest::of(self.0.as_bytes());
        std::array::from_fn(|at| digest[at])
    }
}

/// What a `traceparent` header says (W3C Trace Context, section 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The caller's span in it.
    pub parent: ParentSpan,
}

impl TraceParent {
    /// Unknown versions are read by the version-00 prefix, as the standard asks; `None` when the
    /// header is not well-formed, in which case the standard says to ignore it.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, parent, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_byte = |text: &str| text.len() == 2 && is_lower_hex(text);
        let usable = is_byte(version)
            && version != "ff"
            && (version != "00" || parts.next().is_none())
            && is_w3c(trace)
            && is_byte(flags);
        let flags = u8::from_str_radix(flags, 16).ok().filter(|_| usable)?;
        Some(Self {
            trace: TraceId(trace.to_owned()),
            parent: ParentSpan {
                id: parent.parse().ok()?,
                is_sampled: flags & 1 == 1,
            },
        })
    }
}

impl TryFrom<String> for TraceId {
    type Error = InvalidCall;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl FromStr for TraceId {
    type Err = InvalidCall;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.to_ascii_lowercase();
        if is_w3c(&lower) {
            return Ok(Self(lower));
        }
        short("trace_id", text.to_owned()).map(Self)
    }
}

/// A name of the caller's own, which goes into environments and logs.
///
/// # Errors
/// Refuses what is empty, has more than 256 bytes, or control characters.
pub(super) fn short(member: &'static str, name: String) -> Result<String, InvalidCall> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        let detail = format!("has {} bytes: expected 1 to {LONGEST_NAME}", name.len());
        return Err(InvalidCall::new(member, detail));
    }
    if name.chars().any(char::is_control) {
        let detail = format!("{name:?} has control characters: expected none");
        return Err(InvalidCall::new(member, detail));
    }
    Ok(name)
}

fn is_w3c(text: &str) -> bool {
    text.len() == 32 && is_lower_hex(text) && text.bytes().any(|b| b != b'0')
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_traceparent_gives_its_trace_and_its_span() {
        for (header, expected) in [
            (format!("00-{ID}-00f067aa0ba902b7-01"), Some(ID)),
            (format!("00-{ID}-00f067aa0ba902b7-00"), Some(ID)),
            (format!("00-{ID}-00f067aa0ba902b7-+1"), None),
            (format!("cc-{ID}-00f067aa0ba902b7-01-later"), Some(ID)),
            (format!("00-{ID}-00f067aa0ba902b7-01-later"), None),
            (format!("ff-{ID}-00f067aa0ba902b7-01"), None),
            (format!("00-{ID}-0000000000000000-01"), None),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None),
            (
                format!("00-{}-00f067aa0ba902b7-01", ID.to_uppercase()),
                None,
            ),
            ("rubbish".to_owned(), None),
        ] {
            let found = TraceParent::parse(&header);
            let trace = found.as_ref().map(|found| found.trace.as_str());
            assert_eq!(trace, expected, "{header}");
            if let Some(TraceParent { parent, .. }) = found {
                assert_eq!(parent.id.to_string(), "00f067aa0ba902b7");
                assert_eq!(parent.is_sampled, !header.ends_with("-00"), "{header}");
            }
        }
    }

    #[test]
    fn a_trace_has_an_id_of_the_w3c_or_a_name() {
        for (text, kept, w3c) in [
            (ID, ID, Some(ID)),
            (&*ID.to_uppercase(), ID, Some(ID)),
            ("order 4711", "order 4711", None),
            (&"0".repeat(32), &*"0".repeat(32), None),
            (&ID[1..], &ID[1..], None),
        ] {
            let trace: TraceId = text.parse().expect("usable");
            assert_eq!((trace.as_str(), trace.w3c()), (kept, w3c), "{text}");
        }
        for text in ["", "a\nb", "a\0b", &"x".repeat(257)] {
            let refusal = text.parse::<TraceId>().expect_err("unusable");
            assert_eq!(refusal.member, "trace_id", "{text:?}");
        }
    }

    #[test]
    fn an_execution_is_the_parent_of_what_it_starts() {
        let id = ExecutionId::new();
        let of = |trace: &str| Correlation {
            trace_id: trace.parse().ok(),
            ..Correlation::default()
        };
        let header = of(ID).traceparent(id).expect("a W3C trace");
        let back = TraceParent::parse(&header).expect("well-formed");
        assert_eq!((back.trace.as_str(), back.parent.id), (ID, SpanId::of(id)));
        assert!(back.parent.is_sampled);
        let unrecorded = Correlation {
            parent: Some(ParentSpan {
                is_sampled: false,
                ..back.parent
            }),
            ..of(ID)
        };
        let header = unrecorded.traceparent(id).expect("a W3C trace");
        assert!(header.ends_with("-00"), "{header}");
        assert!(id.to_string().replace('-', "").ends_with(&header[36..52]));
        assert_eq!(of("order 4711").traceparent(id), None);
        assert_eq!(of("x").variables(), [("SHELLY_TRACE_ID", "x")]);
    }
}
