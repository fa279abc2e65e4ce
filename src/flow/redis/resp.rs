//! The protocol of Redis (RESP 2): bytes in, replies out.

use std::io;

use crate::config::MOST_SHARED;

/// The longest line or text of a reply, in bytes; ours are a few dozen.
const MAX_BYTES: usize = 64 * 1024;

/// The most members of a list; ours have as many as places are shared at the most.
const MAX_MEMBERS: usize = MOST_SHARED as usize;

/// A reply, as far as any is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Text(Vec<u8>),
    Error(String),
    Integer(i64),
    List(Vec<Reply>),
    Null,
}

impl Reply {
    /// The number that it is.
    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Text(_) | Self::Error(_) | Self::List(_) | Self::Null => None,
        }
    }
}

/// Adds a command to what is to be sent.
pub(super) fn command(buffer: &mut Vec<u8>, words: &[&[u8]]) {
    buffer.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        buffer.extend(format!("${}\r\n", word.len()).bytes());
        buffer.extend(*word);
        buffer.extend(b"\r\n");
    }
}

/// The first reply in `bytes` and how long it is; `None` when it is not all there.
///
/// # Errors
/// What no server says.
pub(super) fn reply(bytes: &[u8]) -> io::Result<Option<(Reply, usize)>> {
    item(bytes, true)
}

fn item(bytes: &[u8], may_be_list: bool) -> io::Result<Option<(Reply, usize)>> {
    let Some((line, length)) = line(bytes)? else {
        return Ok(None);
    };
    let Some((kind, rest)) = line.split_first() else {
        return Err(malformed("an empty line"));
    };
    match kind {
        b'+' => Ok(Some((Reply::Text(rest.to_vec()), length))),
        b'-' => {
            let text = String::from_utf8_lossy(rest).into_owned();
            Ok(Some((Reply::Error(text), length)))
        }
        b':' => Ok(Some((Reply::Integer(number(rest)?), length))),
        b'$' => text(bytes, number(rest)?, length),
        b'*' if may_be_list => list(bytes, number(rest)?, length),
        _ => Err(malformed("an unknown kind of reply")),
    }
}

fn text(bytes: &[u8], size: i64, head: usize) -> io::Result<Option<(Reply, usize)>> {
    if size == -1 {
        return Ok(Some((Reply::Null, head)));
    }
    let size = within(size, MAX_BYTES)?;
    let Some(body) = bytes.get(head..head + size + 2) else {
        return Ok(None);
    };
    match body.strip_suffix(b"\r\n") {
        Some(text) => Ok(Some((Reply::Text(text.to_vec()), head + size + 2))),
        None => Err(malformed("a text that does not end where it should")),
    }
}

/// Lists in lists are none of ours.
fn list(bytes: &[u8], members: i64, head: usize) -> io::Result<Option<(Reply, usize)>> {
    if members == -1 {
        return Ok(Some((Reply::Null, head)));
    }
    let (mut all, mut at) = (Vec::new(), head);
    for _ in 0..within(members, MAX_MEMBERS)? {
        let Some((member, length)) = item(&bytes[at..], false)? else {
            return Ok(None);
        };
        all.push(member);
        at += length;
    }
    Ok(Some((Reply::List(all), at)))
}

/// The first line without its end, and its length with it.
fn line(bytes: &[u8]) -> io::Result<Option<(&[u8], usize)>> {
    let end = bytes
        .windows(2)
        .take(MAX_BYTES)
        .position(|two| two == b"\r\n");
    match end {
        Some(end) => Ok(Some((&bytes[..end], end + 2))),
        None if bytes.len() > MAX_BYTES => Err(malformed("a line that is too long")),
        None => Ok(None),
    }
}

fn number(digits: &[u8]) -> io::Result<i64> {
    let text = std::str::from_utf8(digits).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| malformed("something else than a number"))
}

fn within(number: i64, max: usize) -> io::Result<usize> {
    let number = usize::try_from(number).ok();
    number
        .filter(|number| *number <= max)
        .ok_or_else(|| malformed("more than was asked for"))
}

fn malformed(what: &str) -> io::Error {
    let detail = format!("the server answers {what}: is it a Redis server?");
    io::Error::new(io::ErrorKind::InvalidData, detail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> Reply {
        let (reply, length) = reply(bytes).expect("a reply").expect("all of it");
        assert_eq!(length, bytes.len());
        reply
    }

    #[test]
    fn replies_are_read() {
        assert_eq!(whole(b"+PONG\r\n"), Reply::Text(b"PONG".to_vec()));
        assert_eq!(whole(b"-NOAUTH x\r\n"), Reply::Error("NOAUTH x".to_owned()));
        assert_eq!(whole(b":-12\r\n"), Reply::Integer(-12));
        assert_eq!(whole(b"$4\r\na\r\nb\r\n"), Reply::Text(b"a\r\nb".to_vec()));
        assert_eq!(whole(b"$-1\r\n"), Reply::Null);
        let list = Reply::List(vec![Reply::Integer(1), Reply::Text(b"x".to_vec())]);
        assert_eq!(whole(b"*2\r\n:1\r\n$1\r\nx\r\n"), list);
    }

    #[test]
    fn a_part_of_a_reply_is_none_yet() {
        for whole in [
            &b"*2\r\n:1\r\n$1\r\nx\r\n"[..],
            b"+PONG\r\n",
            b"$3\r\nabc\r\n",
        ] {
            for end in 0..whole.len() {
                assert_eq!(reply(&whole[..end]).expect("no nonsense"), None);
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\r\n",
            b":x\r\n",
            b"$99999999999\r\n",
            b"$-2\r\n",
            b"$1\r\nabcd",
            b"*1\r\n*1\r\n:1\r\n",
            &[b'+'; MAX_BYTES + 1],
        ] {
            assert!(reply(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_list_has_as_many_members_as_places_can_be_shared() {
        let list = |members: u32| {
            let mut bytes = format!("*{members}\r\n").into_bytes();
            (0..members).for_each(|_| bytes.extend(b":1\r\n"));
            reply(&bytes)
        };
        assert!(list(MOST_SHARED).is_ok_and(|reply| reply.is_some()));
        assert!(list(MOST_SHARED + 1).is_err());
    }

    #[test]
    fn commands_are_lists_of_texts() {
        let mut buffer = Vec::new();
        command(&mut buffer, &[b"SET", b"k", b"a\r\nb"]);
        assert_eq!(buffer, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_survived(bytes in proptest::collection::vec(prop_oneof![
            Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'$'), Just(b':'), Just(b'1'), Just(b'9'), any::<u8>(),
        ], 0..64)) {
            if let Ok(Some((_, length))) = reply(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
