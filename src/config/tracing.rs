//! `[tracing]` of `executor.toml`: where the spans of executions are sent.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The longest name of a service and value of a header, in bytes.
const LONGEST: usize = 1024;

/// Where a collector takes spans (OpenTelemetry Protocol, OTLP/HTTP Request).
const TRACES: &str = "/v1/traces";

/// Headers that are the exporter's own to set.
const OWN_HEADERS: [&str; 8] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "te",
    "transfer-encoding",
    "user-agent",
];

/// Where the spans of executions are sent.
#[derive(Clone, PartialEq, Eq)]
pub struct TracingConfig {
    /// The collector. Default none: nothing is sent.
    pub otlp_endpoint: Option<OtlpEndpoint>,
    /// What is sent with each request besides, names in lower case. Default nothing.
    pub headers: BTreeMap<String, String>,
    /// `service.name` of the spans. Default `shelly-executord`.
    pub service_name: String,
}

impl Default for TracingConfig {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            headers: BTreeMap::new(),
            service_name: "shelly-executord".to_owned(),
        }
    }
}

/// Without the values of headers, where tokens are.
impl fmt::Debug for TracingConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracingConfig")
            .field("otlp_endpoint", &self.otlp_endpoint)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("service_name", &self.service_name)
            .finish()
    }
}

/// The URL of a collector that takes OTLP over HTTP, without a slash at its end:
/// `http://HOST[:PORT][/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEndpoint(String);

impl OtlpEndpoint {
    /// Where spans are posted.
    pub fn traces(&self) -> String {
        format!("{self}{TRACES}")
    }
}

impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for OtlpEndpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        endpoint(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

fn endpoint(text: &str) -> Result<OtlpEndpoint, String> {
    let text = text.trim_end_matches('/');
    if text.starts_with("https:") {
        return Err(format!(
            "{text:?} takes TLS, which there is none of here: run a collector on this host or in its network, which passes spans on over TLS, and name it as \"http://127.0.0.1:4318\""
        ));
    }
    let place = text.strip_prefix("http://");
    if place.is_some_and(|place| place.contains('@')) {
        // It is not repeated: there may be a password in it.
        return Err("names a user: expected \"http://HOST:PORT\", and what authorizes the daemon in `headers`".to_owned());
    }
    if let Some(collector) = text.strip_suffix(TRACES) {
        return Err(format!(
            "{text:?} has the path that is added to it: expected {collector:?}"
        ));
    }
    match place.filter(|place| is_place(place)) {
        Some(_) => Ok(OtlpEndpoint(text.to_owned())),
        None => Err(format!(
            "{text:?} is no collector: expected \"http://HOST:PORT\", such as \"http://127.0.0.1:4318\", and a path where it has one; `{TRACES}` is added to it"
        )),
    }
}

/// `HOST[:PORT][/PATH]`, of characters that stand for themselves (RFC 3986, section 2.3).
fn is_place(place: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let (host, port) = match authority.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((address, port))) => (address.parse().map(|_: std::net::Ipv6Addr| ()), port),
        Some(None) => return false,
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            if host.is_empty() || !host.chars().all(is_plain) {
                return false;
            }
            (Ok(()), port)
        }
    };
    let is_port = |digits: &str| {
        let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
        all_digits && digits.parse::<u16>().is_ok_and(|port| port > 0)
    };
    host.is_ok()
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        && path.chars().all(|c| c == '/' || is_plain(c))
}

/// `[tracing]` as it is written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [tracing]")]
pub(super) struct TracingFile {
    otlp_endpoint: Option<OtlpEndpoint>,
    #[serde(deserialize_with = "headers")]
    headers: BTreeMap<String, String>,
    #[serde(deserialize_with = "service_name")]
    service_name: Option<String>,
}

impl TracingFile {
    /// What is not set has the library's value.
    pub(super) fn config(self) -> TracingConfig {
        let library = TracingConfig::default();
        TracingConfig {
            otlp_endpoint: self.otlp_endpoint,
            headers: self.headers,
            service_name: self.service_name.unwrap_or(library.service_name),
        }
    }
}

fn service_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(deserializer)?;
    if (1..=LONGEST).contains(&name.len()) && !name.chars().any(char::is_control) {
        return Ok(Some(name));
    }
    Err(D::Error::custom(format!(
        "{name:?} is no name of a service: expected 1 to {LONGEST} bytes without control characters"
    )))
}

fn headers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let given = BTreeMap::<String, String>::deserialize(deserializer)?;
    let checked = |(name, value): (String, String)| {
        let name = name.to_ascii_lowercase();
        header(&name, &value).map_err(D::Error::custom)?;
        Ok((name, value))
    };
    given.into_iter().map(checked).collect()
}

/// Whether it can be sent (RFC 9110, sections 5.1 and 5.5).
fn header(name: &str, value: &str) -> Result<(), String> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err(format!(
            "{name:?} is no name of a header: expected one such as \"authorization\""
        ));
    }
    if OWN_HEADERS.contains(&name) {
        return Err(format!(
            "the header {name:?} is set by the daemon: expected another"
        ));
    }
    let is_visible = |c: char| c == ' ' || c.is_ascii_graphic();
    if value.len() > LONGEST || !value.chars().all(is_visible) {
        // The value is not repeated: it may be a token.
        return Err(format!(
            "the value of the header {name:?} cannot be sent: expected at most {LONGEST} visible ASCII characters and blanks"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_named_by_its_url() {
        for (text, traces) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            ("http://collector", "http://collector/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
            ("http://[::1]/x", "http://[::1]/x/v1/traces"),
            (
                "http://tempo.example:80/otlp/a-b",
                "http://tempo.example:80/otlp/a-b/v1/traces",
            ),
        ] {
            assert_eq!(endpoint(text).expect(text).traces(), traces);
        }
    }

    #[test]
    fn what_is_no_collector_is_refused_with_what_to_do() {
        for (text, part) in [
            ("", "expected \"http://HOST:PORT\""),
            ("127.0.0.1:4318", "expected"),
            ("http://", "expected"),
            ("http://:4318", "expected"),
            ("http://h:4318/v1/traces/", "expected \"http://h:4318\""),
            ("http://h:0", "expected"),
            ("http://h:+1", "expected"),
            ("http://h:65536", "expected"),
            ("http://h:", "expected"),
            ("http://[::1", "expected"),
            ("http://[h]:1", "expected"),
            ("http://[::1]4318", "expected"),
            ("http://h/a?b=c", "expected"),
            ("http://h/a#b", "expected"),
            ("http://h /a", "expected"),
            ("grpc://h:4317", "expected"),
            ("https://collector:4318", "run a collector on this host"),
            ("http://user:hunter2@h", "`headers`"),
        ] {
            let refusal = endpoint(text).expect_err(text);
            assert!(refusal.contains(part), "{text}: {refusal}");
            assert!(!refusal.contains("hunter2"), "{refusal}");
        }
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_refused_without_its_value() {
        assert_eq!(header("x-scope-orgid", "tenant 1"), Ok(()));
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a:b", "x"),
            ("content-type", "x"),
            ("authorization", "hunter2\n"),
            ("authorization", "hunter2\u{e9}"),
        ] {
            let refusal = header(name, value).expect_err(name);
            assert!(!refusal.contains("hunter2"), "{refusal}");
        }
        let config = TracingConfig {
            headers: BTreeMap::from([("authorization".to_owned(), "hunter2".to_owned())]),
            ..TracingConfig::default()
        };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
