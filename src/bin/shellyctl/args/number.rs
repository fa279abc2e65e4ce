//! Numbers as people type them, refused with what was expected.

use std::str::FromStr;

/// How many, or which.
pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    let expected = |_| "expected a whole number of 0 or more, and not a huge one".to_owned();
    text.parse().map_err(expected)
}

/// The number of a user.
pub fn uid(text: &str) -> Result<u32, String> {
    let expected = |_| "expected a uid, a number; `id -u NAME` prints that of a user".to_owned();
    text.parse().map_err(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_told_what_was_expected() {
        assert_eq!((number("7"), uid("0")), (Ok(7_u64), Ok(0)));
        for wrong in ["", "abc", "-1", "1.5", "99999999999"] {
            let told = number::<u32>(wrong).expect_err(wrong);
            assert!(told.contains("expected a whole number"), "{wrong}: {told}");
            let told = uid(wrong).expect_err(wrong);
            assert!(told.contains("expected a uid"), "{wrong}: {told}");
        }
    }
}
