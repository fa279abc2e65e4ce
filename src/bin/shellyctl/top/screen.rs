//! The terminal while `top` has it: a screen of its own, and keys as they are pressed. It is given
//! back as it was when the value is dropped, whatever the reason.

use std::io::{self, IsTerminal};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use shelly_executor::client::Decision;
use tokio::io::{AsyncReadExt, Stdin};

use crate::failure::Failure;
use crate::print;

const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    Cancel,
    Decide(Decision),
    Quit,
}

/// The terminal, taken over.
pub struct Screen {
    before: Termios,
    stdin: Stdin,
}

impl Screen {
    /// Takes the terminal.
    pub fn take() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(Failure::NoTerminal);
        }
        let setup = |source: rustix::io::Errno| Failure::Setup {
            source: source.into(),
        };
        let before = rustix::termios::tcgetattr(io::stdin()).map_err(setup)?;
        let mut own = before.clone();
        own.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        // Ctrl-C stays a signal, which is handled; a stop would leave the shell with this screen.
        own.special_codes[SpecialCodeIndex::VSUSP] = 0;
        let screen = Self {
            before,
            stdin: tokio::io::stdin(),
        };
        rustix::termios::tcsetattr(io::stdin(), OptionalActions::Flush, &own).map_err(setup)?;
        write(ENTER)?;
        Ok(screen)
    }

    /// How many lines there are.
    pub fn height() -> usize {
        const USUAL: usize = 24;
        let size = terminal_size::terminal_size_of(io::stdout());
        size.map_or(USUAL, |(_, height)| usize::from(height.0))
    }

    /// Shows lines in place of those before.
    pub fn draw(lines: &[String]) -> Result<(), Failure> {
        let mut text = String::from("\x1b[H");
        text += &lines.join("\x1b[K\r\n");
        text += "\x1b[K\x1b[J";
        write(text.as_bytes())
    }

    /// The keys that are pressed next; none at the end of the input.
    pub async fn keys(&mut self) -> Result<Option<Vec<Key>>, Failure> {
        let mut bytes = [0; 64];
        let read = self.stdin.read(&mut bytes).await;
        let count = read.map_err(|source| Failure::Stdin { source })?;
        Ok((count > 0).then(|| keys(&bytes[..count])))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Whatever of it fails, there is nothing better to do.
        let _ = write(LEAVE);
        let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    print::bytes(bytes)
}

/// The keys in what a terminal sent at once.
fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            0x1b => {
                let (key, after) = escape(rest);
                keys.extend(key);
                rest = after;
            }
            b'k' => keys.push(Key::Up),
            b'j' => keys.push(Key::Down),
            b'c' => keys.push(Key::Cancel),
            b'a' => keys.push(Key::Decide(Decision::Approve)),
            b'd' => keys.push(Key::Decide(Decision::Deny)),
            b'q' => keys.push(Key::Quit),
            _ => {}
        }
    }
    keys
}

/// The key of a sequence whose escape is gone, and what follows it. An unknown one is passed over
/// to its end: its letters are not keys.
fn escape(bytes: &[u8]) -> (Option<Key>, &[u8]) {
    let [b'[' | b'O', rest @ ..] = bytes else {
        return (None, bytes.get(1..).unwrap_or_default());
    };
    let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
    let Some(end) = end else { return (None, &[]) };
    let key = match rest[..=end] {
        [b'A'] => Some(Key::Up),
        [b'B'] => Some(Key::Down),
        _ => None,
    };
    (key, &rest[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_the_letters_of_other_sequences() {
        for (bytes, expected) in [
            (&b"jq"[..], &[Key::Down, Key::Quit][..]),
            (
                b"\x1b[A\x1bOBa",
                &[Key::Up, Key::Down, Key::Decide(Decision::Approve)],
            ),
            (b"\x1b[1;5cd", &[Key::Decide(Decision::Deny)]),
            (b"\x1ba", &[]),
            (b"\x1b", &[]),
            (b"\x1b[12", &[]),
            (b"x\xff\x00", &[]),
        ] {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }
}
