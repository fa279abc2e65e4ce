//! A Redis server that daemons share: token buckets and places are decided on there, by a script for each. A
//! server that cannot be asked is told to whoever asks, and looked for until it is there again.

mod connection;
mod places;
mod rates;
mod resp;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::refusal::{Charge, Limited};
use super::shares::{Claim, Claims};
use crate::config::RedisAddress;
use connection::Connection;
use resp::Reply;

/// How many calls are asked about at once: more wait for the answer.
const BATCH: usize = 64;

/// How long a call waits for an answer: as long as those before it and its own may take.
const ANSWER: Duration = Duration::from_millis(500);

/// How often it is looked whether the server is there while nobody asks.
const LOOK: Duration = Duration::from_secs(1);

/// How long it is waited before the server is looked for again: so long at first, then twice that.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// How long a claim to a place is good for if it is not renewed: it lapses with the daemon that made it.
const LEASE: Duration = Duration::from_secs(10);

/// How often claims are to be renewed.
pub(super) const RENEW: Duration = Duration::from_secs(3);

/// What a server keeps. The task behind it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Redis {
    questions: mpsc::Sender<Question>,
    state: Arc<Mutex<State>>,
}

/// How it is to the best of one's knowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Nobody knows yet.
    Unknown,
    Up,
    /// It is there, and refuses to do what it is asked about this: what it says.
    Refusing(Subject, String),
    /// What is wrong.
    Down(String),
}

/// What a server is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Rates,
    Places,
}

/// The server could not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreachable;

/// What is asked, and who waits for the answer.
enum Question {
    Take(Vec<Charge>, oneshot::Sender<Result<(), Limited>>),
    Hold(Claims, oneshot::Sender<Vec<bool>>),
}

/// What the server calls the scripts.
struct Scripts {
    take: Vec<u8>,
    hold: Vec<u8>,
}

impl Redis {
    /// Looks for the server, and tells `changed` when it is found or lost. Must be called inside a tokio
    /// runtime.
    pub(super) fn start(address: RedisAddress, changed: Arc<Notify>) -> Self {
        let (questions, asked) = mpsc::channel(BATCH);
        let state = Arc::new(Mutex::new(State::Unknown));
        let keeper = Keeper {
            address,
            state: Arc::clone(&state),
            changed,
        };
        tokio::spawn(keeper.run(asked));
        Self { questions, state }
    }

    /// Takes a call out of each bucket, or out of none.
    pub(super) async fn take(
        &self,
        charges: &[Charge],
    ) -> Result<Result<(), Limited>, Unreachable> {
        let charges = charges.to_vec();
        self.ask(|answer| Question::Take(charges, answer)).await
    }

    /// Holds places, or waits for them: says of each claim whether it is a place now.
    pub(super) async fn hold(&self, claims: &Claims) -> Result<Vec<bool>, Unreachable> {
        let claims = claims.clone();
        self.ask(|answer| Question::Hold(claims, answer)).await
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, Unreachable> {
        // Nobody waits for a server that is known not to be there.
        if !self.is_up() {
            return Err(Unreachable);
        }
        let (answer, answered) = oneshot::channel();
        let asking = async {
            let sent = self.questions.send(question(answer)).await;
            sent.map_err(|_| Unreachable)?;
            answered.await.map_err(|_| Unreachable)
        };
        timeout(ANSWER, asking).await.unwrap_or(Err(Unreachable))
    }

    /// Whether the server does all that it is asked, as far as is known.
    pub(super) fn is_well(&self) -> bool {
        *self.state.lock() == State::Up
    }

    /// Whether the server can be asked, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.state.lock(), State::Up | State::Refusing(..))
    }

    /// What is wrong with the server, if something is.
    pub(super) fn problem(&self) -> Option<String> {
        match &*self.state.lock() {
            State::Unknown | State::Up => None,
            State::Refusing(_, detail) | State::Down(detail) => Some(detail.clone()),
        }
    }
}

/// Keeps the connection.
struct Keeper {
    address: RedisAddress,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Keeper {
    async fn run(self, mut asked: mpsc::Receiver<Question>) {
        let mut wait = FIRST_WAIT;
        loop {
            let error = match self.connect().await {
                Ok((mut connection, scripts)) => {
                    self.set_up();
                    let serving = self.serve(&mut connection, &scripts, &mut asked, &mut wait);
                    match serving.await {
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

    /// A connection to a server that has the scripts.
    async fn connect(&self) -> io::Result<(Connection, Scripts)> {
        let mut connection = Connection::open(&self.address).await?;
        let scripts = Scripts {
            take: load(&mut connection, rates::SCRIPT).await?,
            hold: load(&mut connection, places::SCRIPT).await?,
        };
        Ok((connection, scripts))
    }

    /// Asks the server what is asked, many at once, until there is nobody left to ask. `wait` begins anew once it has
    /// answered: one that only lets itself be connected to is not looked for at once, for ever.
    async fn serve(
        &self,
        connection: &mut Connection,
        scripts: &Scripts,
        asked: &mut mpsc::Receiver<Question>,
        wait: &mut Duration,
    ) -> io::Result<()> {
        let mut batch = Vec::new();
        // A claim that was refused. Another is tried in its place: a call is mostly over before it could be claimed for,
        // and that a claim may be given up says nothing.
        let mut refused: Option<Claims> = None;
        let mut tried = Instant::now();
        loop {
            match timeout(LOOK, asked.recv_many(&mut batch, BATCH)).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(_) => drop(connection.expect(&[b"PING"]).await?),
            }
            refused = refused.filter(|_| self.refuses_places());
            if let Some(claims) = &refused
                && tried.elapsed() >= LOOK
            {
                batch.extend(Question::trial(claims));
                tried = Instant::now();
            }
            let mut commands = Vec::new();
            for question in &batch {
                question.command(&mut commands, scripts);
            }
            // Dropped with an error, they are told that nobody answers.
            let replies = connection.exchange(&commands, batch.len()).await?;
            for (question, reply) in batch.drain(..).zip(replies) {
                match reply {
                    // It was started anew, or had to forget the scripts: the next connection brings them along.
                    Reply::Error(text) if text.starts_with("NOSCRIPT") => {
                        return Err(io::Error::other(text));
                    }
                    // Whoever asked does without; the rest may be answered.
                    Reply::Error(text) => {
                        self.set_refusing(question.subject(), &text);
                        refused = refused.or_else(|| question.into_claims());
                    }
                    reply @ (Reply::Text(_) | Reply::Integer(_) | Reply::List(_) | Reply::Null) => {
                        let (subject, writes) = (question.subject(), question.writes());
                        question.answer(&reply)?;
                        if writes {
                            self.set_obliging(subject);
                        }
                    }
                }
            }
            *wait = FIRST_WAIT;
        }
    }

    fn set_refusing(&self, subject: Subject, text: &str) {
        let server = &self.address.server;
        let detail = format!("the Redis server at {server} refuses what it is asked: {text}");
        self.set(State::Refusing(subject, detail));
    }

    /// It does what it is asked about this; whether it does what else it has refused is not known.
    fn set_obliging(&self, subject: Subject) {
        let known = self.state.lock().clone();
        if known == State::Up || matches!(known, State::Refusing(other, _) if other == subject) {
            self.set_up();
        }
    }

    fn refuses_places(&self) -> bool {
        matches!(*self.state.lock(), State::Refusing(Subject::Places, _))
    }

    fn set_up(&self) {
        self.set(State::Up);
    }

    fn set_down(&self, error: &io::Error) {
        let server = &self.address.server;
        self.set(State::Down(format!(
            "cannot ask the Redis server at {server}: {error}"
        )));
    }

    /// Says how it is from now on, where that is another than before.
    fn set(&self, state: State) {
        let mut known = self.state.lock();
        if *known == state {
            return;
        }
        let before = std::mem::replace(&mut *known, state.clone());
        drop(known);
        self.changed.notify_one();
        let server = &self.address.server;
        match (before, state) {
            (State::Unknown | State::Up, State::Down(detail) | State::Refusing(_, detail)) => {
                tracing::warn!(
                    "{detail}; each daemon keeps to rates and shared places by itself meanwhile"
                );
            }
            (State::Down(_) | State::Refusing(..), State::Up) => {
                tracing::info!(
                    "the Redis server at {server} is there again: rates and places are shared"
                );
            }
            _ => {}
        }
    }
}

async fn load(connection: &mut Connection, script: &str) -> io::Result<Vec<u8>> {
    let load: [&[u8]; 3] = [b"SCRIPT", b"LOAD", script.as_bytes()];
    match connection.expect(&load).await? {
        Reply::Text(digest) => Ok(digest),
        reply @ (Reply::Error(_) | Reply::Integer(_) | Reply::List(_) | Reply::Null) => {
            Err(unexpected(&reply))
        }
    }
}

impl Question {
    fn subject(&self) -> Subject {
        match self {
            Self::Take(..) => Subject::Rates,
            Self::Hold(..) => Subject::Places,
        }
    }

    /// Puts a claim down where others were refused, and strikes it out at once.
    fn trial(refused: &Claims) -> [Self; 2] {
        // One of this daemon's own.
        let id = refused
            .claims
            .first()
            .map_or("trial".to_owned(), |claim| format!("{}/trial", claim.id));
        let claim = Claim {
            id: id.clone(),
            is_held: false,
        };
        [(vec![claim], Vec::new()), (Vec::new(), vec![id])].map(|(claims, gone)| {
            let claims = Claims {
                claims,
                gone,
                ..refused.clone()
            };
            Self::Hold(claims, oneshot::channel().0)
        })
    }

    /// The claims that it makes, if it makes any.
    fn into_claims(self) -> Option<Claims> {
        match self {
            Self::Take(..) => None,
            Self::Hold(claims, _) => Some(claims).filter(|claims| !claims.claims.is_empty()),
        }
    }

    /// Whether something is to be put down. A server that has no memory left still strikes out.
    fn writes(&self) -> bool {
        match self {
            Self::Take(..) => true,
            Self::Hold(claims, _) => !claims.claims.is_empty(),
        }
    }

    fn command(&self, commands: &mut Vec<u8>, scripts: &Scripts) {
        let (script, keys, arguments) = match self {
            Self::Take(charges, _) => (&scripts.take, rates::keys(charges), rates::words(charges)),
            Self::Hold(claims, _) => (&scripts.hold, places::keys(claims), places::words(claims)),
        };
        let mut words = vec![
            b"EVALSHA".to_vec(),
            script.clone(),
            keys.len().to_string().into_bytes(),
        ];
        let rest = keys.into_iter().chain(arguments);
        words.extend(rest.map(String::into_bytes));
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        resp::command(commands, &words);
    }

    /// Passes on what the script says; who asked may have gone.
    fn answer(self, reply: &Reply) -> io::Result<()> {
        let Reply::List(members) = reply else {
            return Err(unexpected(reply));
        };
        let numbers: Option<Vec<i64>> = members.iter().map(Reply::integer).collect();
        let numbers = numbers.ok_or_else(|| unexpected(reply))?;
        match self {
            Self::Take(charges, answer) => {
                let taken = rates::read(&numbers, &charges);
                drop(answer.send(taken.ok_or_else(|| unexpected(reply))?));
            }
            Self::Hold(claims, answer) => {
                let held = places::read(&numbers, &claims);
                drop(answer.send(held.ok_or_else(|| unexpected(reply))?));
            }
        }
        Ok(())
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
