//! Where rates and shared places are kept: `backend` of `[flow]`.

use std::fmt;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The port of a Redis server that no other is named for.
const REDIS_PORT: u16 = 6379;

/// Where rates and shared places are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FlowBackend {
    /// In memory: each daemon has its own.
    #[default]
    Memory,
    /// In a Redis server, which all daemons share that name it.
    Redis(RedisAddress),
}

/// A Redis server and what to say to it first.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAddress {
    /// Where it listens.
    pub server: RedisServer,
    /// The user; `None` for the server's default.
    pub user: Option<String>,
    /// The password, if it takes one.
    pub password: Option<String>,
    /// The number of the database. Default 0.
    pub database: u32,
}

/// Where a Redis server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisServer {
    /// At a host's name or address and a port.
    Tcp(String, u16),
    /// At a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Without the password.
impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisAddress")
            .field("server", &self.server)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("database", &self.database)
            .finish()
    }
}

impl<'de> Deserialize<'de> for FlowBackend {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "memory" {
            return Ok(Self::Memory);
        }
        // The text is not repeated: there may be a password in it.
        let expected = || {
            D::Error::custom(
                "no backend: expected \"memory\", \"redis://USER:PASSWORD@HOST:PORT/DATABASE\" or \"redis+unix:///PATH\"; all but host and path can be left out, and there is no TLS",
            )
        };
        address(&text).map(Self::Redis).ok_or_else(expected)
    }
}

fn address(text: &str) -> Option<RedisAddress> {
    if let Some(path) = text.strip_prefix("redis+unix://") {
        let is_path = path.starts_with('/') && !path.contains('\0');
        return is_path.then(|| RedisAddress {
            server: RedisServer::Unix(path.into()),
            user: None,
            password: None,
            database: 0,
        });
    }
    let rest = text.strip_prefix("redis://")?;
    let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
    let database = match database {
        "" => 0,
        number => number.parse().ok()?,
    };
    let (login, place) = place.rsplit_once('@').unwrap_or(("", place));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let given = |text: &str| match text {
        "" => Some(None),
        text => decoded(text).map(Some),
    };
    let (user, password) = (given(user)?, given(password)?);
    // A user without a password is refused by the server, in words that do not help.
    if user.is_some() && password.is_none() {
        return None;
    }
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (
                host,
                port.strip_prefix(':').or(port.is_empty().then_some(""))?,
            )
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let port = match port {
        "" => REDIS_PORT,
        number => number.parse().ok()?,
    };
    (!host.is_empty()).then(|| RedisAddress {
        server: RedisServer::Tcp(host.to_owned(), port),
        user,
        password,
        database,
    })
}

/// What percent-encoding (RFC 3986, section 2.1) stands for.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            rest = after;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_in_all_its_parts() {
        let full = address("redis://shelly:s%40crt@db.example:6380/3").expect("valid");
        let expected = RedisAddress {
            server: RedisServer::Tcp("db.example".to_owned(), 6380),
            user: Some("shelly".to_owned()),
            password: Some("s@crt".to_owned()),
            database: 3,
        };
        assert_eq!(full, expected);
        assert!(!format!("{full:?}").contains("crt"));
        for (text, server) in [
            ("redis://localhost", "localhost:6379"),
            ("redis://localhost/", "localhost:6379"),
            ("redis://:word@10.0.0.1:7", "10.0.0.1:7"),
            ("redis://[::1]", "[::1]:6379"),
            ("redis://[::1]:8/2", "[::1]:8"),
            ("redis+unix:///run/redis.sock", "/run/redis.sock"),
        ] {
            let found = address(text).expect(text);
            assert_eq!(found.server.to_string(), server, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_none() {
        for text in [
            "",
            "disk",
            "redis:/x",
            "redis://",
            "redis://h:port",
            "redis://h:99999",
            "redis://h/x",
            "redis://user@h",
            "redis://:%4@h",
            "redis://[::1",
            "redis://[::1]7",
            "rediss://h",
            "redis+unix://run",
        ] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
