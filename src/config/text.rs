use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::ConfigError;

/// The largest file of configuration that is read, in bytes: thousands of rules. To read TOML takes some thirty times as much
/// memory.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a file of configuration.
///
/// # Errors
/// When it cannot be read or is larger than 1 MiB, and the line of the first byte that is no text.
pub fn read_text(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    };
    // Reading a FIFO would wait for a writer, and the daemon with it.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("it is not a regular file")));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let mut beginning = file.take(MAX_BYTES + 1);
    beginning.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unreadable(io::Error::other("it is larger than 1 MiB")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let text = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        ConfigError::Invalid {
            path: path.to_owned(),
            line: memchr::memchr_iter(b'\n', text).count() + 1,
            key: None,
            detail: "expected text in UTF-8".to_owned(),
        }
    })
}

/// Whether there is nothing of that name, not even a link that leads nowhere.
pub fn is_absent(path: &Path) -> bool {
    matches!(std::fs::symlink_metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_named_with_its_line() {
        let path = std::env::temp_dir().join(format!("text-{}.toml", std::process::id()));
        for (bytes, line) in [
            (&b"\xff"[..], 1),
            (b"# gr\xfc\xdfe\n", 1),
            ("# größe\nshell = \"".as_bytes(), 0),
            (b"a = 1\n\n# \xe2\x82", 3),
        ] {
            std::fs::write(&path, bytes).expect("written");
            match read_text(&path) {
                Ok(text) => assert_eq!((text.as_bytes(), line), (bytes, 0)),
                Err(error) => {
                    let told = format!("{}:{line}: expected text in UTF-8", path.display());
                    assert_eq!(error.chain(), told);
                }
            }
        }
        std::fs::remove_file(&path).expect("ours");
        let error = read_text(&std::env::temp_dir()).expect_err("a directory");
        assert!(error.chain().contains("not a regular file"), "{error}");
    }
}
