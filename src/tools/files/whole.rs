use std::io::Read;

use rustix::fs::OFlags;

use super::access::Found;
use super::text::Encoding;
use super::{FileError, Work};
use crate::domain::{Digest, counted};

/// What is read between two looks at whether to stop.
pub(super) const CHUNK: usize = 256 * 1024;

/// All bytes of a file, which may be no larger than configured.
pub(super) fn read(work: &Work<'_>, found: &Found) -> Result<Vec<u8>, FileError> {
    let most = work.access.max_file_size;
    if found.size() > most {
        return Err(too_large(&found.asked, found.size(), most, ""));
    }
    let mut file = found.open(OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    loop {
        work.check_stop()?;
        let chunk = Read::by_ref(&mut file)
            .take(CHUNK as u64)
            .read_to_end(&mut bytes);
        let read = chunk.map_err(FileError::io("read", &found.asked))?;
        // It may have grown since its size was looked at.
        if bytes.len() as u64 > most {
            return Err(too_large(&found.asked, bytes.len() as u64, most, ""));
        }
        if read == 0 {
            return Ok(bytes);
        }
    }
}

/// `instead` is what can be done instead, if something can.
pub(super) fn too_large(asked: &str, size: u64, most: u64, instead: &str) -> FileError {
    let why =
        format!("has {size} bytes, and [files] max_file_size_mb allows {most} bytes{instead}");
    FileError::refused(asked, why)
}

/// The encoding of a file that begins with `head`: the named one, else what it shows. `None` for bytes that are no text.
/// Where only text may be touched they are refused, whatever they are said to be.
pub(super) fn encoding(
    work: &Work<'_>,
    found: &Found,
    (named, head): (Option<&str>, &[u8]),
) -> Result<Option<Encoding>, FileError> {
    if work.access.restricts_extensions() && Encoding::of_file(None, head)?.is_none() {
        let why = "it is binary, and [files] allowed_extensions leaves only text";
        return Err(FileError::denied(&found.real, why));
    }
    Encoding::of_file(named, head)
}

pub(super) fn binary(asked: &str) -> FileError {
    let why = "is binary: it has NUL bytes; name its encoding if it is text all the same";
    FileError::refused(asked, why)
}

/// Refuses a file that is not any more what the caller has read.
pub(super) fn check_digest(
    asked: &str,
    expected: Option<&str>,
    bytes: Option<&[u8]>,
) -> Result<(), FileError> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let Some(expected) = Digest::from_hex(expected) else {
        let why = "expected the 64 hexadecimal digits that read_file answered as digest";
        return Err(FileError::input("expected_digest", why));
    };
    match bytes.map(Digest::of) {
        Some(digest) if digest == expected => Ok(()),
        Some(_) => {
            let why = "is not any more what it was when its digest was taken: read it again";
            Err(FileError::refused(asked, why))
        }
        None => {
            let why = "is not there or too large to be read, so that its digest cannot be expected_digest";
            Err(FileError::refused(asked, why))
        }
    }
}

/// The text of a file that is to be changed: every byte of it must come back as it was.
pub(super) fn text(asked: &str, encoding: Encoding, bytes: &[u8]) -> Result<String, FileError> {
    let decoded = encoding.decode(bytes);
    let comes_back = decoded.invalid_bytes == 0
        && encoding
            .encode(&decoded.text)
            .is_ok_and(|again| again == bytes);
    if comes_back {
        return Ok(decoded.text);
    }
    let (count, name) = (decoded.invalid_bytes, encoding.name());
    let what = match count {
        0 => format!("does not come back the same from {name}"),
        count => {
            let count = counted(count, "byte that is", "bytes that are");
            format!("has {count} not {name}")
        }
    };
    let why = format!(
        "{what}, so that a change would spoil it: name its encoding (\"latin1\" knows every byte)"
    );
    Err(FileError::refused(asked, why))
}
