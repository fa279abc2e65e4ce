use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::resp::{self, Reply};
use crate::config::{RedisAddress, RedisServer};

/// How long a server may take to answer: a thousand times what it does take, and as long as a call
/// can be kept waiting that will then be judged without it.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long it may take to reach a server, which nobody waits for.
const REACH: Duration = Duration::from_secs(3);

/// A connection to a Redis server. After an error it is of no use any more.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// What was read and is not used up.
    read: Vec<u8>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connection {
    /// Reaches the server and says who one is.
    pub(super) async fn open(address: &RedisAddress) -> io::Result<Self> {
        let stream = timeout(REACH, stream(&address.server)).await;
        let mut connection = Self {
            stream: stream.map_err(|_| too_slow())??,
            read: Vec::new(),
        };
        let database = address.database.to_string();
        if let Some(password) = &address.password {
            let password = password.as_bytes();
            match &address.user {
                Some(user) => {
                    connection
                        .expect(&[b"AUTH", user.as_bytes(), password])
                        .await?
                }
                None => connection.expect(&[b"AUTH", password]).await?,
            };
        }
        if address.database != 0 {
            connection.expect(&[b"SELECT", database.as_bytes()]).await?;
        }
        Ok(connection)
    }

    /// Sends a command and reads what is not an error.
    pub(super) async fn expect(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        let mut command = Vec::new();
        resp::command(&mut command, words);
        let reply = self.exchange(&command, 1).await?.pop();
        match reply.unwrap_or(Reply::Null) {
            Reply::Error(text) => Err(io::Error::other(text)),
            reply @ (Reply::Text(_) | Reply::Integer(_) | Reply::List(_) | Reply::Null) => {
                Ok(reply)
            }
        }
    }

    /// Sends commands and reads as many replies.
    pub(super) async fn exchange(
        &mut self,
        commands: &[u8],
        replies: usize,
    ) -> io::Result<Vec<Reply>> {
        let exchange = async {
            self.stream.write_all(commands).await?;
            self.stream.flush().await?;
            let mut all = Vec::with_capacity(replies);
            while all.len() < replies {
                match resp::reply(&self.read)? {
                    Some((reply, length)) => {
                        self.read.drain(..length);
                        all.push(reply);
                    }
                    None if self.stream.read_buf(&mut self.read).await? == 0 => {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    None => {}
                }
            }
            Ok(all)
        };
        timeout(PATIENCE, exchange).await.map_err(|_| too_slow())?
    }
}

async fn stream(server: &RedisServer) -> io::Result<Box<dyn Stream>> {
    Ok(match server {
        RedisServer::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            // What is sent is sent at once.
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        RedisServer::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time")
}
