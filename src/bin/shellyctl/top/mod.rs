//! `shellyctl top`: what runs and what waits for approval, as it changes, with keys to act on it.

mod model;
mod screen;
mod view;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use shelly_executor::client::{
    Client, ClientError, FeedFilter, FeedItem, HistoryFilter, Resolution,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::print::Page;
use crate::signals::Signals;
use crate::subscription::{Subscription, Told, may_pass};
use crate::{approvals, cancel};
use model::{Model, Next};
use screen::{Key, Screen};

/// The statuses of what is under way.
const UNDER_WAY: [&str; 3] = ["queued", "waiting", "running"];

/// How many of each status are listed: no screen shows more.
const MOST: u32 = 1000;

/// How often ages are drawn anew where nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// How soon the daemon has told what it is asked for, where keys still mean what they were pressed for.
const PROMPT: Duration = Duration::from_millis(250);

/// Shows what goes on until somebody has seen enough.
pub async fn run(client: &Client) -> Result<ExitCode, Failure> {
    let resized = signal(SignalKind::window_change());
    let mut resized = resized.map_err(|source| Failure::Setup { source })?;
    // Listening comes first, so that nothing can slip in between.
    let mut subscription = Subscription::open(client, FeedFilter::default(), None).await?;
    let mut top = Top::new(client);
    top.reload().await?;
    let mut tick = tokio::time::interval(TICK);
    let (said, mut hear) = mpsc::unbounded_channel();
    // From here on there is a terminal to give back. Before, signals end it by themselves, whatever it
    // waits for.
    let mut signals = Signals::with_quit()?;
    let mut screen = Screen::take()?;
    loop {
        top.draw()?;
        tokio::select! {
            () = signals.next() => break,
            _ = resized.recv() => {}
            _ = tick.tick() => {}
            Some(message) = hear.recv() => top.message = message,
            told = subscription.next() => {
                let (told, began) = (told?, Instant::now());
                let (shown, mut pressed) = (top.chosen(), Vec::new());
                // A daemon that does not answer keeps nobody here. In order, so that no key is taken
                // where nothing is waited for.
                let done = tokio::select! {
                    biased;
                    done = top.told(told) => done,
                    () = signals.next() => break,
                    left = left(&mut screen, &mut pressed) => {
                        left?;
                        break;
                    }
                };
                match done {
                    // All is asked for when the daemon is back.
                    Err(error) if may_pass(&error) => subscription.begin_again(),
                    done => done?,
                }
                // Those of long ago are about lines that may not be there any more.
                if began.elapsed() < PROMPT {
                    top.keys_about(shown.as_ref(), pressed, &said);
                }
            }
            keys = screen.keys() => {
                let Some(keys) = keys? else { break };
                if keys.contains(&Key::Quit) {
                    break;
                }
                keys.into_iter().for_each(|key| top.key(key, &said));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until somebody wants to leave, and gathers what other keys are `pressed` meanwhile.
async fn left(screen: &mut Screen, pressed: &mut Vec<Key>) -> Result<(), Failure> {
    while let Some(keys) = screen.keys().await? {
        if keys.contains(&Key::Quit) {
            break;
        }
        pressed.extend(keys);
    }
    Ok(())
}

struct Top {
    client: Client,
    model: Model,
    message: String,
}

impl Top {
    fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            model: Model::default(),
            message: String::new(),
        }
    }

    /// The execution and the approval that keys are about.
    fn chosen(&self) -> Option<(String, Option<String>)> {
        let row = self.model.selected()?;
        let approval = row.approval.as_ref().map(|approval| approval.id.clone());
        Some((row.execution_id.clone(), approval))
    }

    /// Does what keys ask for that were pressed while `shown` was what they were about: what they decide on is that, or
    /// nothing.
    fn keys_about(
        &mut self,
        shown: Option<&(String, Option<String>)>,
        pressed: Vec<Key>,
        said: &mpsc::UnboundedSender<String>,
    ) {
        let mut is_shown = self.chosen().as_ref() == shown;
        for key in pressed {
            let moves = matches!(key, Key::Up | Key::Down);
            if moves || is_shown {
                self.key(key, said);
            }
            is_shown &= !moves;
        }
    }

    fn draw(&mut self) -> Result<(), Failure> {
        self.model.hold();
        let height = Screen::height();
        Screen::draw(&view::lines(
            &self.model,
            &self.message,
            Page::stdout(),
            height,
        ))
    }

    /// Asks for everything, since events do not tell it.
    async fn reload(&mut self) -> Result<(), ClientError> {
        let mut executions = Vec::new();
        for status in UNDER_WAY {
            let filter = HistoryFilter {
                status: Some(status.to_owned()),
                limit: Some(MOST),
                ..HistoryFilter::default()
            };
            let list = self.client.executions(&filter).await?.value.executions;
            executions.extend(list.into_iter().map(|item| item.value));
        }
        let pending = match self.client.approvals().await {
            Ok(list) => list.value.approvals,
            // Who may not approve can still look at what runs.
            Err(error @ ClientError::Refused { .. }) if !may_pass(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut asked = Vec::new();
        for item in pending {
            asked.push(approvals::whole(&self.client, item.value).await);
        }
        self.model.reset(executions, asked);
        Ok(())
    }

    async fn told(&mut self, told: Told) -> Result<(), ClientError> {
        if let Some(message) = told.message() {
            self.message = message;
        }
        match told {
            Told::Item(FeedItem::Happened(happening)) => {
                if let Next::Approval(id) = self.model.take(&happening) {
                    match self.client.approval(&id).await {
                        Ok(approval) => self.model.asked(approval.value),
                        Err(error @ ClientError::Refused { .. }) if !may_pass(&error) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Told::Item(FeedItem::Missed { .. }) | Told::Again => self.reload().await?,
            Told::Lost => {}
        }
        Ok(())
    }

    /// Does what a key asks for. What came of it is heard later: cancelling takes as long as the
    /// processes need to die.
    fn key(&mut self, key: Key, said: &mpsc::UnboundedSender<String>) {
        let Some(row) = self.model.selected() else {
            return;
        };
        let (client, said) = (self.client.clone(), said.clone());
        match (key, &row.approval) {
            (Key::Up, _) => self.model.step(-1),
            (Key::Down, _) => self.model.step(1),
            (Key::Cancel, _) => {
                let id = row.execution_id.clone();
                tokio::spawn(async move {
                    let record = client.cancel(&id).await;
                    say(&said, record.map(|record| cancel::render(&record)));
                });
            }
            (Key::Decide(decision), Some(approval)) => {
                let id = approval.id.clone();
                tokio::spawn(async move {
                    let approval = client.resolve(&id, &Resolution::new(decision)).await;
                    say(
                        &said,
                        approval.map(|approval| approvals::decided(&approval)),
                    );
                });
            }
            (Key::Decide(_), None) => {
                "it does not wait for approval".clone_into(&mut self.message);
            }
            (Key::Quit, _) => {}
        }
    }
}

/// Nobody hears it once the screen is gone.
fn say(said: &mpsc::UnboundedSender<String>, outcome: Result<String, ClientError>) {
    let _ = said.send(outcome.unwrap_or_else(|error| error.to_string()));
}
