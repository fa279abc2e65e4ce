//! What may be reached from inside of the sandbox: names with their ports.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// By tool, what its untrusted executions may connect to.
pub type EgressLists = BTreeMap<String, Vec<Destination>>;

/// A port of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The host.
    pub host: Host,
    /// The TCP port; never 0.
    pub port: u16,
}

/// A host as it is named, which is how it is compared: an address is not the name that stands for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A DNS name, in lower case and without the dot at its end.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl FromStr for Host {
    type Err = String;

    /// A DNS name (letters, digits, `-`, `_`), an IPv4 address, or an IPv6 address in brackets.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected a DNS name, an IPv4 address or an IPv6 address in brackets";
        let refused = || format!("{text:?} is no host: {expected}");
        if let Some(address) = text.strip_prefix('[') {
            let address = address.strip_suffix(']').ok_or_else(refused)?;
            let address: Ipv6Addr = address.parse().map_err(|_| refused())?;
            return Ok(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            (1..=63).contains(&label.len()) && label.bytes().all(is_plain)
        };
        // `127.1`, `2130706433` and `0x7f.1` are addresses to a resolver (inet_aton(3)).
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
            || last
                .get(..2)
                .is_some_and(|start| start.eq_ignore_ascii_case("0x"));
        if name.len() > 253 || is_number || !name.split('.').all(is_label) {
            return Err(refused());
        }
        Ok(Self::Name(name.to_ascii_lowercase()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is no destination: expected \"host:port\"");
        let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
        let is_plain = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| *port > 0 && is_plain);
        Ok(Self {
            host: host.parse()?,
            port: port.ok_or_else(|| format!("{}: expected a port from 1 to 65535", refused()))?,
        })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_host_and_a_port() {
        for (text, meant) in [
            ("crates.io:443", "crates.io:443"),
            ("Crates.IO.:443", "crates.io:443"),
            ("_x-y.internal:1", "_x-y.internal:1"),
            ("4chan.example:80", "4chan.example:80"),
            ("10.0.0.1:65535", "10.0.0.1:65535"),
            ("[2001:DB8::1]:8080", "[2001:db8::1]:8080"),
        ] {
            let parsed: Destination = text.parse().expect(text);
            assert_eq!(parsed.to_string(), meant);
        }
        for text in [
            "",
            "crates.io",
            ":443",
            "crates.io:",
            "crates.io:0",
            "crates.io:+1",
            "crates.io:65536",
            "https://crates.io:443",
            "*.crates.io:443",
            "a..b:1",
            "a b:1",
            "user@host:1",
            "127.1:80",
            "2130706433:80",
            "0x7f.0x1:80",
            "::1:80",
            "[::1:80",
            "[127.0.0.1]:80",
        ] {
            let refused = text.parse::<Destination>().expect_err(text);
            assert!(refused.contains("expected"), "{refused}");
        }
    }
}
