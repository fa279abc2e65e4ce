use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use data_encoding::HEXLOWER_PERMISSIVE;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// By their values.
const DIGITS: [u8; 16] = *b"0123456789abcdef";

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

    /// As 64 hexadecimal digits. An execution's records have a good many of them: none goes through a formatter.
    fn digits(&self) -> [u8; 64] {
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        digits
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
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
    begun: Begun,
    rest: Bytes,
}

#[derive(Clone, Debug)]
enum Begun {
    Here(Hasher),
    /// By a thread that sets it when it is done.
    Beside(Arc<OnceLock<Hasher>>),
    /// By whoever comes first.
    HandedOver(Arc<HandedOver>),
}

#[derive(Debug)]
struct HandedOver {
    /// Until somebody has begun.
    left: Mutex<Option<PendingDigest>>,
    done: OnceLock<Hasher>,
}

impl HandedOver {
    fn hash(&self) {
        let left = self.left.lock().take();
        if let Some(PendingDigest { begun, rest }) = left {
            // Nobody else sets it.
            let _ = self.done.set(begun.with(&rest));
        }
    }
}

impl PendingDigest {
    /// Of what `hasher` has taken in, and the `rest` that it has not.
    pub fn new(hasher: Hasher, rest: Bytes) -> Self {
        let begun = Begun::Here(hasher);
        Self { begun, rest }
    }

    /// Of what another thread is about to have taken in, which sets `hasher` in any case, and the
    /// `rest` that it does not get.
    pub fn beside(hasher: Arc<OnceLock<Hasher>>, rest: Bytes) -> Self {
        let begun = Begun::Beside(hasher);
        Self { begun, rest }
    }

    /// Whether it is there in less time than it takes to wake a thread.
    pub fn is_at_hand(&self) -> bool {
        /// What is hashed in that time.
        const SHORT_BYTES: usize = 8 * 1024;
        let has_begun = match &self.begun {
            Begun::Here(_) => true,
            Begun::Beside(hasher) => hasher.get().is_some(),
            Begun::HandedOver(handed_over) => handed_over.done.get().is_some(),
        };
        has_begun && self.rest.len() <= SHORT_BYTES
    }

    /// Splits off the hashing that is left: dropping the [`Unhashed`] does it, on a thread that may take its time. Who
    /// needs the digest before that has begun does it instead.
    pub fn hand_over(self) -> (Self, Unhashed) {
        let handed_over = Arc::new(HandedOver {
            left: Mutex::new(Some(self)),
            done: OnceLock::new(),
        });
        let pending = Self {
            begun: Begun::HandedOver(Arc::clone(&handed_over)),
            rest: Bytes::new(),
        };
        (pending, Unhashed(handed_over))
    }

    /// Takes in what is left, a millisecond for each 1 to 2 MB, and waits for who takes in the
    /// other part.
    pub fn digest(self) -> Digest {
        self.begun.with(&self.rest).digest()
    }
}

impl Begun {
    fn with(&self, rest: &[u8]) -> Hasher {
        let mut hasher = match self {
            Self::Here(hasher) => hasher.clone(),
            Self::Beside(hasher) => hasher.wait().clone(),
            Self::HandedOver(handed_over) => {
                handed_over.hash();
                handed_over.done.wait().clone()
            }
        };
        hasher.update(rest);
        hasher
    }
}

/// What is left of a digest to be computed, which is done when it is let go of, wherever that is.
#[derive(Debug)]
pub struct Unhashed(Arc<HandedOver>);

impl Drop for Unhashed {
    fn drop(&mut self) {
        self.0.hash();
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
        f.write_str(str::from_utf8(&self.digits()).map_err(|_| fmt::Error)?)
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.digits();
        let text = str::from_utf8(&digits).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(text)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_digest_is_taken_in_once_by_whoever_comes_first() {
        let begun = || {
            let mut hasher = Hasher::default();
            hasher.update(b"first ");
            PendingDigest::new(hasher, Bytes::from_static(b"and last"))
        };
        let expected = Digest::of(b"first and last");
        let (pending, rest) = begun().hand_over();
        drop(rest);
        assert!(pending.is_at_hand());
        assert_eq!(pending.digest(), expected);
        // Nobody has come for it.
        let (pending, rest) = begun().hand_over();
        assert!(!pending.is_at_hand());
        assert_eq!(pending.clone().digest(), expected);
        drop(rest);
        assert_eq!(pending.digest(), expected);
    }
}
