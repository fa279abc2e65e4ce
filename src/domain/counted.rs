/// So many of something, in words: `1 line`, `2 lines`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let what = if count == 1 { one } else { many };
    format!("{count} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one() {
        assert_eq!(counted(0, "rule", "rules"), "0 rules");
        assert_eq!(counted(1, "rule", "rules"), "1 rule");
        assert_eq!(counted(2, "rule", "rules"), "2 rules");
    }
}
