/// How alike (Jaro-Winkler, 0 to 1) two names must be for one to be suggested for the other.
/// `bsh` and `bash` are at 0.92, `read` and `bash` at 0.5.
const NEAR: f64 = 0.75;

/// How long a name may be that is held against others, in bytes: none of ours is nearly as long, and it takes
/// seconds for one of megabytes.
const LONGEST: usize = 256;

/// The one of `names` that somebody may have meant by `name`.
pub(crate) fn meant<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > LONGEST {
        return None;
    }
    let name = name.to_lowercase();
    let likeness = |candidate| (strsim::jaro_winkler(&name, candidate), candidate);
    names
        .into_iter()
        .map(likeness)
        .filter(|(likeness, _)| *likeness >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// What follows a name that is none of `names`, where one of them may have been meant: ` (did you mean …?)`.
pub(crate) fn or_meant<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let meant = meant(name, names);
    meant.map_or_else(String::new, |meant| format!(" (did you mean `{meant}`?)"))
}

/// A message of serde, with what may have been meant if it is about a name that is not known.
pub(crate) fn with_meant(message: String) -> String {
    suggested(&message).unwrap_or(message)
}

/// Serde gives the names in its text only: "unknown field `x`, expected one of `a`, `b`".
fn suggested(message: &str) -> Option<String> {
    let unknown = ["unknown field `", "unknown variant `"];
    let (start, rest) = unknown
        .iter()
        .find_map(|start| Some((message.find(start)? + start.len(), *start)))
        .map(|(at, _)| message.split_at(at))?;
    let (name, expected) = rest.split_once("`, expected ")?;
    let names = expected.split('`').skip(1).step_by(2);
    let meant = or_meant(name, names);
    Some(format!("{start}{name}`{meant}, expected {expected}"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "lowercase")]
    enum Word {
        First {
            #[serde(rename = "timeout_secs")]
            _timeout: u8,
            #[serde(rename = "stdin")]
            _stdin: u8,
        },
        Second,
    }

    #[test]
    fn what_is_near_is_suggested_and_the_rest_stays_as_it_is() {
        let told = |json| {
            let error = serde_json::from_str::<Word>(json).expect_err(json);
            with_meant(error.to_string())
        };
        assert_eq!(
            told(r#"{"first": {"timeout": 1}}"#),
            "unknown field `timeout` (did you mean `timeout_secs`?), expected `timeout_secs` or `stdin` at line 1 column 20"
        );
        assert_eq!(
            told(r#""secnd""#),
            "unknown variant `secnd` (did you mean `second`?), expected `first` or `second` at line 1 column 7"
        );
        for json in [
            r#"{"first": {"a`, expected ": 1}}"#,
            r#"{"first": {"qqq": 1}}"#,
            r#"{"first": 5}"#,
        ] {
            assert!(!told(json).contains("did you mean"), "{}", told(json));
        }
    }
}
