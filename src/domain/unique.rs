//! JSON in which no object has a member twice. Which of the two counts differs from reader to reader (RFC 8259, section 4),
//! and what is judged and approved has to be what runs.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

/// Reads any value. For `#[serde(deserialize_with)]`.
///
/// # Errors
/// What is no JSON, and a member that is given twice, however deep.
pub(crate) fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    deserializer.deserialize_any(Any)
}

/// Reads an object.
///
/// # Errors
/// As [`value`], and what is no object.
pub(crate) fn object<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Map<String, Value>, D::Error> {
    deserializer.deserialize_map(Object)
}

/// Reads an object whose members are all of a kind, or null.
///
/// # Errors
/// As [`object`], and a member that is of another kind.
pub(crate) fn optional_members<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, T>>, D::Error> {
    struct Given<T>(BTreeMap<String, T>);

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Members(PhantomData)).map(Self)
        }
    }

    let given = Option::<Given<T>>::deserialize(deserializer)?;
    Ok(given.map(|Given(members)| members))
}

/// The name of the next member, which must not be among those before it.
fn next_name<'de, A: MapAccess<'de>>(
    members: &mut A,
    is_there: impl FnOnce(&str) -> bool,
) -> Result<Option<String>, A::Error> {
    /// Of a longer name this many characters are told.
    const MOST: usize = 80;
    let name: Option<String> = members.next_key()?;
    if let Some(name) = name.as_deref().filter(|name| is_there(name)) {
        let told: String = name.chars().take(MOST).collect();
        return Err(A::Error::custom(format_args!("duplicate field `{told}`")));
    }
    Ok(name)
}

struct Any;

impl<'de> DeserializeSeed<'de> for Any {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        value(deserializer)
    }
}

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(element) = elements.next_element_seed(Any)? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Value, A::Error> {
        Object.visit_map(members).map(Value::Object)
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = next_name(&mut members, |name| object.contains_key(name))? {
            object.insert(name, members.next_value_seed(Any)?);
        }
        Ok(object)
    }
}

struct Members<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(name) = next_name(&mut members, |name| map.contains_key(name))? {
            map.insert(name, members.next_value()?);
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Value, serde_json::Error> {
        value(&mut serde_json::Deserializer::from_str(text))
    }

    #[test]
    fn a_member_given_twice_is_refused_however_deep() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"x":{"a":null,"b":[],"a":null}}]"#,
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.starts_with("duplicate field `a`"), "{text}: {error}");
        }
        let name = "x".repeat(1000);
        let error = read(&format!(r#"{{"{name}":1,"{name}":1}}"#)).expect_err("twice");
        assert!(error.to_string().len() < 150, "{error}");
    }

    proptest! {
        #[test]
        fn what_has_no_member_twice_is_what_serde_json_makes_of_it(
            text in r#"(\[|\{"a":|\{"b":)?(null|true|-?[0-9]{1,25}(\.5)?(e[0-9])?|"(x|\\u00e9|\\n)*"|\[\]|\{\})(\]|\})?"#,
        ) {
            prop_assert_eq!(read(&text).ok(), serde_json::Deserializer::from_str(&text).into_iter::<Value>().next().and_then(Result::ok));
        }
    }
}
