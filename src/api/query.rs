//! The parameters behind the `?` of a path: what cannot be read is refused by name and value, with what was
//! expected.

use std::error::Error;

use axum::extract::rejection::QueryRejection;
use serde::de::{Deserialize, Deserializer, Error as _};

use super::problem::{Code, Refusal};
use crate::domain::with_meant;

/// The query of what takes none: what stands there is meant to say something.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}

/// The refusal of a query.
pub(super) fn bad_query(rejection: QueryRejection) -> Refusal {
    let mut cause: &dyn Error = &rejection;
    // The innermost says what it is; those around it which layer of ours found it.
    while let Some(source) = cause.source() {
        cause = source;
    }
    let told = match cause.downcast_ref::<Located>() {
        Some(at) => {
            let (place, why) = (format!("`{}`", at.path()), at.inner().to_string());
            // A name that nothing has is said of the query as a whole.
            let is_named = at.path().iter().next().is_none() || why.contains(&place);
            if is_named {
                why
            } else {
                format!("{place}: {why}")
            }
        }
        None => cause.to_string(),
    };
    Refusal::new(
        Code::MalformedRequest,
        format!("the query cannot be read: {}", with_meant(told)),
    )
}

/// What axum reads a query with says where it stopped.
type Located = serde_path_to_error::Error<serde::de::value::Error>;

/// A whole number, such as a uid or the number of an event.
pub(super) fn number<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let text = String::deserialize(deserializer)?;
    let number = text.parse::<u64>().ok();
    let number = number.and_then(|number| T::try_from(number).ok());
    let most = u64::MAX >> (u64::BITS - 8 * u32::try_from(size_of::<T>()).unwrap_or(8).min(8));
    number.map(Some).ok_or_else(|| {
        D::Error::custom(format_args!(
            "{text:?} is no number in range: expected a whole one from 0 to {most}"
        ))
    })
}

/// A number of seconds, fractions allowed; its range is for the handler to say.
pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|_| {
        D::Error::custom(format_args!(
            "{text:?} is no number: expected seconds, such as 0.5 or 30"
        ))
    })
}

/// Yes or no.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|_| {
        D::Error::custom(format_args!(
            "{text:?} is neither: expected `true` or `false`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use axum::extract::Query;
    use axum::http::Uri;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct All {
        #[serde(default, deserialize_with = "number")]
        uid: Option<u32>,
        #[serde(default, deserialize_with = "number")]
        after: Option<u64>,
        #[serde(default, deserialize_with = "seconds")]
        wait: Option<f64>,
        #[serde(default, deserialize_with = "flag")]
        all: Option<bool>,
    }

    fn read(query: &str) -> Result<All, String> {
        let uri: Uri = format!("/x?{query}").parse().expect("a URI");
        let read = Query::<All>::try_from_uri(&uri).map_err(bad_query);
        read.map(|Query(all)| all).map_err(|refusal| refusal.detail)
    }

    #[test]
    fn what_cannot_be_read_is_named_with_what_was_expected() {
        for (query, told) in [
            (
                "uid=root",
                "`uid`: \"root\" is no number in range: expected a whole one from 0 to 4294967295",
            ),
            (
                "after=18446744073709551616",
                "`after`: \"18446744073709551616\" is no number in range: expected a whole one from 0 to 18446744073709551615",
            ),
            (
                "wait=abc",
                "`wait`: \"abc\" is no number: expected seconds, such as 0.5 or 30",
            ),
            (
                "all=yes",
                "`all`: \"yes\" is neither: expected `true` or `false`",
            ),
            (
                "uid=0&colour=red",
                "unknown field `colour`, expected one of `uid`, `after`, `wait`, `all`",
            ),
        ] {
            let refused = read(query).expect_err(query);
            assert_eq!(refused, format!("the query cannot be read: {told}"));
        }
    }

    #[test]
    fn what_can_be_read_is() {
        let all = read("uid=4294967295&after=7&wait=0.5&all=true").expect("valid");
        assert_eq!((all.uid, all.after), (Some(u32::MAX), Some(7)));
        assert_eq!((all.wait, all.all), (Some(0.5), Some(true)));
        let none = read("").expect("valid");
        assert_eq!((none.uid, none.after), (None, None));
        assert_eq!((none.wait, none.all), (None, None));
    }
}
