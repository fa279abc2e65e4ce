//! Ids as people type them: whole, or the beginning or end of one.

use shelly_executor::client::{Client, HistoryFilter};

use crate::failure::Failure;

/// How long a UUID is.
const WHOLE: usize = 36;

/// How many executions are looked at, the newest: what a daemon lists at once.
const NEWEST: u32 = 1000;

/// The least of an execution's id that is looked for: less is soon that of another one, and more than
/// looking is done with it.
const LEAST: usize = 4;

/// How many of several that may be meant are named.
const NAMED: usize = 5;

/// Whether nothing is missing of the id.
pub const fn is_whole(given: &str) -> bool {
    given.len() >= WHOLE
}

/// The id of the execution that is meant.
pub async fn execution(client: &Client, given: &str) -> Result<String, Failure> {
    if is_whole(given) {
        return Ok(given.to_owned());
    }
    if given.len() < LEAST {
        let given = given.to_owned();
        return Err(Failure::TooShort {
            given,
            least: LEAST,
        });
    }
    let newest = HistoryFilter {
        limit: Some(NEWEST),
        ..HistoryFilter::default()
    };
    let list = client.executions(&newest).await?;
    let ids = list.executions.iter();
    pick(given, ids.map(|item| item.execution_id.as_str()))
}

/// The only one of `ids` that begins or ends so. One that nobody has is left to the daemon, which knows why.
pub fn pick<'a>(given: &str, ids: impl Iterator<Item = &'a str>) -> Result<String, Failure> {
    pick_of(given, ids.filter(|id| may_be(given, id)))
}

/// Whether `given` is the beginning or end of `id`.
pub fn may_be(given: &str, id: &str) -> bool {
    !given.is_empty() && (id.starts_with(given) || id.ends_with(given))
}

/// The same of those that may be meant.
pub fn pick_of<'a>(given: &str, ids: impl Iterator<Item = &'a str>) -> Result<String, Failure> {
    let found: Vec<&str> = ids.collect();
    match found.as_slice() {
        [id] => Ok((*id).to_owned()),
        [] => Ok(given.to_owned()),
        several if several.contains(&given) => Ok(given.to_owned()),
        several => {
            let (named, rest) = several.split_at(several.len().min(NAMED));
            let more = match rest.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Err(Failure::Ambiguous {
                given: given.to_owned(),
                found: named.join(", ") + &more,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_or_the_end_of_an_id_will_do_if_it_is_the_only_one() {
        let ids = ["0199aa-01", "0199ab-02", "0199aa-03", "02"];
        let pick = |given| pick(given, ids.iter().copied());
        for (given, meant) in [
            ("0199ab", "0199ab-02"),
            ("-02", "0199ab-02"),
            ("03", "0199aa-03"),
            ("0199aa-01", "0199aa-01"),
            ("0188", "0188"),
            ("", ""),
            ("02", "02"),
        ] {
            assert_eq!(pick(given).expect("one"), meant, "{given}");
        }
        let several = pick("0199aa").expect_err("two").to_string();
        assert!(several.contains("0199aa-01, 0199aa-03"), "{several}");
    }

    #[test]
    fn of_many_that_may_be_meant_a_few_are_named() {
        let ids: Vec<String> = (0..9).map(|n| format!("0199-{n}")).collect();
        let many = pick("0199", ids.iter().map(String::as_str)).expect_err("nine");
        let told = many.to_string();
        assert!(told.ends_with("0199-3, 0199-4 and 4 more"), "{told}");
    }
}
