//! The shapes of well-known tokens.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

/// A kind of token by what it begins with and goes on with.
pub(in crate::domain) struct Shape {
    pub(super) prefix: &'static str,
    pub(super) class: Class,
    /// How many of `class` follow at the least.
    pub(super) least: usize,
}

/// What a token goes on with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Letters,
    /// And `_`.
    Word,
    /// And `-`.
    Dashed,
    /// And `.`.
    Dotted,
}

impl Class {
    /// How many there are.
    pub(super) const COUNT: usize = Self::Dotted as usize + 1;

    pub(super) fn has(self, byte: u8) -> bool {
        byte.is_ascii_alphanumeric()
            || match byte {
                b'_' => self != Self::Letters,
                b'-' => matches!(self, Self::Dashed | Self::Dotted),
                b'.' => self == Self::Dotted,
                _ => false,
            }
    }
}

impl Shape {
    /// The same as a regular expression.
    pub(in crate::domain) fn pattern(&self) -> String {
        let class = match self.class {
            Class::Letters => "A-Za-z0-9",
            Class::Word => "A-Za-z0-9_",
            Class::Dashed => "A-Za-z0-9_-",
            Class::Dotted => "A-Za-z0-9_.-",
        };
        format!(r"\b{}[{class}]{{{},}}", self.prefix, self.least)
    }
}

/// The shapes that providers have given their tokens so that they can be found.
#[rustfmt::skip]
pub(in crate::domain) const SHAPES: &[Shape] = &[
    Shape { prefix: "shelly_call_", class: Class::Letters, least: 64 }, // our own, for calls of skills
    Shape { prefix: "sk-",         class: Class::Dashed,  least: 16 }, // Anthropic, OpenAI
    Shape { prefix: "sk_live_",    class: Class::Letters, least: 16 }, // Stripe
    Shape { prefix: "rk_live_",    class: Class::Letters, least: 16 },
    Shape { prefix: "ghp_",        class: Class::Letters, least: 20 }, // GitHub
    Shape { prefix: "gho_",        class: Class::Letters, least: 20 },
    Shape { prefix: "ghu_",        class: Class::Letters, least: 20 },
    Shape { prefix: "ghs_",        class: Class::Letters, least: 20 },
    Shape { prefix: "ghr_",        class: Class::Letters, least: 20 },
    Shape { prefix: "github_pat_", class: Class::Word,    least: 20 },
    Shape { prefix: "glpat-",      class: Class::Dashed,  least: 16 }, // GitLab
    Shape { prefix: "xoxa-",       class: Class::Dashed,  least: 10 }, // Slack
    Shape { prefix: "xoxb-",       class: Class::Dashed,  least: 10 },
    Shape { prefix: "xoxp-",       class: Class::Dashed,  least: 10 },
    Shape { prefix: "xoxr-",       class: Class::Dashed,  least: 10 },
    Shape { prefix: "xoxs-",       class: Class::Dashed,  least: 10 },
    Shape { prefix: "AKIA",        class: Class::Letters, least: 16 }, // AWS
    Shape { prefix: "ASIA",        class: Class::Letters, least: 16 },
    Shape { prefix: "AIza",        class: Class::Dashed,  least: 35 }, // Google
    Shape { prefix: "npm_",        class: Class::Letters, least: 36 },
    Shape { prefix: "hf_",         class: Class::Letters, least: 30 }, // Hugging Face
    Shape { prefix: "eyJ",         class: Class::Dotted,  least: 30 }, // JSON Web Token (RFC 7519)
];

/// Leftmost, because only then the search goes by SIMD: 25 times as fast, at 70 µs a MiB.
pub(super) static PREFIXES: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let prefixes = SHAPES.iter().map(|shape| shape.prefix);
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostFirst)
        .build(prefixes)
        .ok()
});

/// Bytes that a token may go on with.
pub(super) struct Run {
    class: Class,
    pub(super) end: usize,
    /// Where the last but one of its dots is.
    second_last_dot: Option<usize>,
}

impl Run {
    pub(super) fn measure(text: &[u8], begin: usize, class: Class) -> Self {
        let length = text[begin..].iter().position(|byte| !class.has(*byte));
        let end = length.map_or(text.len(), |length| begin + length);
        let dots = |at: &usize| text[*at] == b'.';
        Self {
            class,
            end,
            second_last_dot: (begin..end).rev().filter(dots).nth(1),
        }
    }

    /// Whether what begins there can be a whole token. A JSON Web Token has three parts.
    pub(super) fn is_complete_from(&self, begin: usize) -> bool {
        self.class != Class::Dotted || self.second_last_dot.is_some_and(|dot| dot >= begin)
    }
}
