use std::fmt;
use std::io;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// What stands before the first record of a chain.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

/// Computes a digest piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes in what comes next.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all that was taken in.
    pub fn digest(&self) -> Digest {
        Digest(self.0.clone().finalize().into())
    }
}

/// A digest of which the last part is still to be computed, where that keeps nobody waiting.
#[derive(Clone, Debug)]
pub struct PendingDigest {
    hasher: Hasher,
    rest: Bytes,
}

impl PendingDigest {
    /// Of what `hasher` has taken in, and the `rest` that it has not.
    pub fn new(hasher: Hasher, rest: Bytes) -> Self {
        Self { hasher, rest }
    }

    /// How many bytes are still to be taken in.
    pub fn rest(&self) -> usize {
        self.rest.len()
    }

    /// Takes them in: about a millisecond for each 1 to 2 MB.
    pub fn digest(mut self) -> Digest {
        self.hasher.update(&self.rest);
        self.hasher.digest()
    }
}

impl io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        let expected = || serde::de::Error::custom("expected the 64 digits of a SHA-256");
        Self::from_hex(&text).ok_or_else(expected)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
