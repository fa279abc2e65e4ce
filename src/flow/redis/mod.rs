//! Token buckets in a Redis server, for all daemons that share it. Decided there, by one script; a
//! server that cannot be asked is told to whoever asks, and looked for until it is there again.

mod connection;
mod resp;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::lock;
use super::refusal::{Charge, Limited, Whose};
use crate::config::RedisAddress;
use connection::Connection;
use resp::Reply;

const SCRIPT: &str = include_str!("take.lua");

/// What the names of all buckets begin with.
const PREFIX: &str = "shelly:rate:";

/// How many calls are asked about at once: more wait for the answer.
const BATCH: usize = 64;

/// How long a call waits for an answer: as long as those before it and its own may take.
const ANSWER: Duration = Duration::from_millis(500);

/// How often it is looked whether the server is there while nobody asks.
const LOOK: Duration = Duration::from_secs(1);

/// How long it is waited before the server is looked for again: so long at first, then twice that.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The buckets of a server. The task behind it ends when this is dropped.
#[derive(Debug)]
pub(super) struct SharedRates {
    questions: mpsc::Sender<Question>,
    state: Arc<Mutex<State>>,
}

/// How it is to the best of one's knowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Nobody knows yet.
    Unknown,
    Up,
    /// What is wrong.
    Down(String),
}

/// The server could not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreachable;

struct Question {
    charges: Vec<Charge>,
    answer: oneshot::Sender<Result<(), Limited>>,
}

impl SharedRates {
    /// Looks for the server. Must be called inside a tokio runtime.
    pub(super) fn start(address: RedisAddress) -> Self {
        let (questions, asked) = mpsc::channel(BATCH);
        let state = Arc::new(Mutex::new(State::Unknown));
        let keeper = Keeper {
            address,
            state: Arc::clone(&state),
        };
        tokio::spawn(keeper.run(asked));
        Self { questions, state }
    }

    /// Takes a call out of each bucket, or out of none.
    pub(super) async fn take(
        &self,
        charges: &[Charge],
    ) -> Result<Result<(), Limited>, Unreachable> {
        // Nobody waits for a server that is known not to be there.
        if !self.is_up() {
            return Err(Unreachable);
        }
        let (answer, answered) = oneshot::channel();
        let question = Question {
            charges: charges.to_vec(),
            answer,
        };
        let asking = async {
            let sent = self.questions.send(question).await;
            sent.map_err(|_| Unreachable)?;
            answered.await.map_err(|_| Unreachable)
        };
        timeout(ANSWER, asking).await.unwrap_or(Err(Unreachable))
    }

    /// Whether the server can be asked, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        *lock(&self.state) == State::Up
    }

    /// What is wrong with the server, if something is.
    pub(super) fn problem(&self) -> Option<String> {
        match &*lock(&self.state) {
            State::Unknown | State::Up => None,
            State::Down(detail) => Some(detail.clone()),
        }
    }
}

/// Keeps the connection.
struct Keeper {
    address: RedisAddress,
    state: Arc<Mutex<State>>,
}

impl Keeper {
    async fn run(self, mut asked: mpsc::Receiver<Question>) {
        let mut wait = FIRST_WAIT;
        loop {
            let error = match self.connect().await {
                Ok((mut connection, script)) => {
                    self.set_up();
                    wait = FIRST_WAIT;
                    match serve(&mut connection, &script, &mut asked).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            self.set_down(&error);
            // Who asked in the last moment is told that nobody answers.
            let until = tokio::time::Instant::now() + wait;
            loop {
                match tokio::time::timeout_at(until, asked.recv()).await {
                    Ok(Some(question)) => drop(question),
                    Ok(None) => return,
                    Err(_) => break,
                }
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// A connection to a server that has the script.
    async fn connect(&self) -> io::Result<(Connection, Vec<u8>)> {
        let mut connection = Connection::open(&self.address).await?;
        let load: [&[u8]; 3] = [b"SCRIPT", b"LOAD", SCRIPT.as_bytes()];
        match connection.expect(&load).await? {
            Reply::Text(digest) => Ok((connection, digest)),
            reply @ (Reply::Error(_) | Reply::Integer(_) | Reply::List(_) | Reply::Null) => {
                Err(unexpected(&reply))
            }
        }
    }

    fn set_up(&self) {
        let before = std::mem::replace(&mut *lock(&self.state), State::Up);
        let server = &self.address.server;
        if let State::Down(_) = before {
            tracing::info!("the Redis server at {server} is there again: rates are shared");
        }
    }

    fn set_down(&self, error: &io::Error) {
        let server = &self.address.server;
        let detail = format!("cannot ask the Redis server at {server}: {error}");
        let before = std::mem::replace(&mut *lock(&self.state), State::Down(detail.clone()));
        if !matches!(before, State::Down(_)) {
            tracing::warn!("{detail}; each daemon keeps to the rates by itself meanwhile");
        }
    }
}

/// Asks the server what is asked, many at once, until there is nobody left to ask.
async fn serve(
    connection: &mut Connection,
    script: &[u8],
    asked: &mut mpsc::Receiver<Question>,
) -> io::Result<()> {
    let mut batch = Vec::new();
    loop {
        match timeout(LOOK, asked.recv_many(&mut batch, BATCH)).await {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(_) => drop(connection.expect(&[b"PING"]).await?),
        }
        let mut commands = Vec::new();
        for question in &batch {
            take(&mut commands, script, &question.charges);
        }
        // Dropped with an error, they are told that nobody answers.
        let replies = connection.exchange(&commands, batch.len()).await?;
        for (question, reply) in batch.drain(..).zip(replies) {
            let answer = read(&reply, &question.charges)?;
            // Who asked may have gone.
            let _ = question.answer.send(answer);
        }
    }
}

/// The command that takes a call out of the buckets.
fn take(commands: &mut Vec<u8>, script: &[u8], charges: &[Charge]) {
    let mut words = vec![
        b"EVALSHA".to_vec(),
        script.to_vec(),
        charges.len().to_string().into_bytes(),
    ];
    let keys = charges.iter().map(|charge| key(&charge.whose).into_bytes());
    words.extend(keys);
    for Charge { rate, .. } in charges {
        let interval = (rate.per / rate.calls).as_secs_f64() * 1e6;
        let ahead = interval * f64::from(rate.burst - 1);
        words.extend([interval, ahead].map(|micros| format!("{micros:.3}").into_bytes()));
    }
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    resp::command(commands, &words);
}

/// What the script says.
fn read(reply: &Reply, charges: &[Charge]) -> io::Result<Result<(), Limited>> {
    let Reply::List(members) = reply else {
        // A server that was started anew lacks the script: the next connection brings it along.
        return Err(unexpected(reply));
    };
    match members[..] {
        [Reply::Integer(0), _] => Ok(Ok(())),
        [Reply::Integer(which), Reply::Integer(micros)] => {
            let charge = usize::try_from(which - 1).ok();
            let charge = charge.and_then(|which| charges.get(which));
            let charge = charge.ok_or_else(|| unexpected(reply))?;
            Ok(Err(Limited {
                charge: charge.clone(),
                retry_after: Duration::from_micros(u64::try_from(micros).unwrap_or_default()),
            }))
        }
        _ => Err(unexpected(reply)),
    }
}

fn key(whose: &Whose) -> String {
    match whose {
        Whose::Tool(name) => format!("{PREFIX}tool:{name}"),
        Whose::Caller(uid) => format!("{PREFIX}caller:{uid}"),
        Whose::Tenant(id) => format!("{PREFIX}tenant:{id}"),
    }
}

fn unexpected(reply: &Reply) -> io::Error {
    match reply {
        Reply::Error(text) => io::Error::other(text.clone()),
        Reply::Text(_) | Reply::Integer(_) | Reply::List(_) | Reply::Null => {
            io::Error::new(io::ErrorKind::InvalidData, "its answer is not the script's")
        }
    }
}
