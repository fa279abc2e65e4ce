//! What stands between `$'` and `'`.

/// The text of `$'…'`, as bash has it: it ends at a NUL, and what is no text is U+FFFD. None where we do not know.
pub fn ansi_c(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first()?;
        rest = after;
        let byte = match escape {
            b'a' => 7,
            b'b' => 8,
            b'e' | b'E' => 27,
            b'f' => 12,
            b'n' => 10,
            b'r' => 13,
            b't' => 9,
            b'v' => 11,
            b'\\' | b'\'' | b'"' | b'?' => escape,
            b'c' => {
                let (&control, after) = rest.split_first()?;
                // A backslash is written twice there.
                let is_twice = control == b'\\' && after.first() == Some(&b'\\');
                rest = &after[usize::from(is_twice)..];
                match control {
                    b'?' => 0x7f,
                    control => control.to_ascii_uppercase() & 0x1f,
                }
            }
            b'0'..=b'7' => low_byte(number(&mut rest, 8, 2, u32::from(escape - b'0')).0),
            b'x' if rest.starts_with(b"{") => {
                rest = &rest[1..];
                let (value, _) = number(&mut rest, 16, usize::MAX, 0);
                rest = rest.strip_prefix(b"}").unwrap_or(rest);
                low_byte(value)
            }
            b'x' | b'u' | b'U' => {
                let most = match escape {
                    b'x' => 2,
                    b'u' => 4,
                    _ => 8,
                };
                match number(&mut rest, 16, most, 0) {
                    (_, 0) => {
                        bytes.extend([b'\\', escape]);
                        continue;
                    }
                    (value, _) if value < 0x80 || escape == b'x' => low_byte(value),
                    (value, _) => {
                        let c = char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER);
                        bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                        continue;
                    }
                }
            }
            other => {
                bytes.extend([b'\\', other]);
                continue;
            }
        };
        if byte == 0 {
            break;
        }
        bytes.push(byte);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number that `rest` begins with, of so many digits at most, behind `first`; and how many digits it has.
fn number(rest: &mut &[u8], radix: u32, most: usize, first: u32) -> (u32, usize) {
    let digit = |byte: &u8| char::from(*byte).to_digit(radix);
    let digits = rest.iter().map_while(digit).take(most);
    let (value, count) = digits.fold((first, 0), |(value, count), digit| {
        (value.wrapping_mul(radix).wrapping_add(digit), count + 1)
    });
    *rest = &rest[count..];
    (value, count)
}

fn low_byte(value: u32) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_what_bash_makes_of_them() {
        for (source, expected) in [
            (r"a\x{24}(b)", "a$(b)"),
            (r"\x24(\x7b\x7D\x{7d", "$({}}"),
            (r"\x{124}\x2g\xg", "$\u{2}g\\xg"),
            (r"a+\z\d", r"a+\z\d"),
            (r"a\0b", "a"),
            (r"a\x00b", "a"),
            (r"a\u0b\u00000", "a\u{b}"),
            (r"\44\0441\777", "$$1\u{fffd}"),
            (r"\cI\c\\a\c?\ci", "\t\u{1c}a\u{7f}\t"),
            (r"\u24\U00000024\ug\u20ac", "$$\\ug€"),
            (r"a\xffb\xe2\x82\xac", "a\u{fffd}b€"),
            (r#"\'\"\?\\\e"#, "'\"?\\\u{1b}"),
        ] {
            assert_eq!(ansi_c(source).as_deref(), Some(expected), "{source}");
        }
        assert_eq!(ansi_c(r"a\c"), None);
    }
}
