//! `shellyctl approvals --watch`: shows what waits for a person's word as it comes, and on a
//! terminal asks about each. What somebody else decides meanwhile is told and not asked about.

use std::collections::{BTreeSet, VecDeque};
use std::io::IsTerminal;
use std::process::ExitCode;

use futures_util::FutureExt as _;
use rustix::termios::QueueSelector;
use shelly_executor::client::{
    Approval, Client, ClientError, Decision, FeedFilter, FeedItem, Received, Remember, Resolution,
};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use crate::approvals::{card, decided};
use crate::failure::Failure;
use crate::print::{self, Page};
use crate::subscription::{Subscription, Told, may_pass};

/// What an approval goes through.
const TYPES: [&str; 3] = [
    "confirmationRequired",
    "confirmationDecided",
    "confirmationExpired",
];

/// What may be answered; where nothing can be remembered, not that it is to be.
fn question(approval: &Approval) -> &'static str {
    match approval.remember_rules.is_empty() {
        true => "[a]pprove / [d]eny / [s]kip? ",
        false => "[a]pprove / [A]lways / [d]eny / [s]kip? ",
    }
}

/// Shows approvals until it is interrupted, or standard input ends where that is asked.
pub async fn run(client: &Client, json: bool) -> Result<ExitCode, Failure> {
    let filter = FeedFilter {
        types: TYPES.map(str::to_owned).to_vec(),
        ..FeedFilter::default()
    };
    // Listening comes first, so that none can slip in between.
    let mut subscription = Subscription::open(client, filter, None).await?;
    let mut desk = Desk::new(client, json);
    desk.catch_up().await?;
    loop {
        desk.ask()?;
        let done = tokio::select! {
            told = subscription.next() => desk.told(told?).await,
            line = next_line(&mut desk.lines) => match line? {
                Some(line) => desk.answer(&line).await,
                None => return Ok(ExitCode::SUCCESS),
            },
        };
        match done {
            // All is asked for when the daemon is back.
            Err(Failure::Client(error)) if may_pass(&error) => {
                desk.interrupt();
                print::note(&error.to_string());
                subscription.begin_again();
            }
            done => done?,
        }
    }
}

/// The next answer, none at the end of the input; never, where there is none to come.
async fn next_line(lines: &mut Option<Lines<BufReader<Stdin>>>) -> Result<Option<String>, Failure> {
    match lines {
        Some(lines) => {
            let line = lines.next_line().await;
            line.map_err(|source| Failure::Stdin { source })
        }
        None => std::future::pending().await,
    }
}

/// What is open, and what is being asked.
struct Desk<'a> {
    client: &'a Client,
    json: bool,
    page: Page,
    /// Where answers come from; none where nothing is asked.
    lines: Option<Lines<BufReader<Stdin>>>,
    /// Those known to be pending.
    pending: BTreeSet<String>,
    /// Those that are still to be asked about; the first is the one being asked about.
    queue: VecDeque<Received<Approval>>,
    asked: bool,
}

impl<'a> Desk<'a> {
    fn new(client: &'a Client, json: bool) -> Self {
        let people = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let lines = (people && !json).then(|| BufReader::new(tokio::io::stdin()).lines());
        Self {
            client,
            json,
            page: Page::stdout(),
            lines,
            pending: BTreeSet::new(),
            queue: VecDeque::new(),
            asked: false,
        }
    }

    async fn told(&mut self, told: Told) -> Result<(), Failure> {
        if let Some(message) = told.message() {
            self.interrupt();
            print::note(&message);
        }
        match told {
            Told::Item(FeedItem::Happened(happening)) => match happening.text("approval_id") {
                Some(id) => self.look_at(id).await,
                None => Ok(()),
            },
            Told::Item(FeedItem::Missed { .. }) | Told::Again => self.catch_up().await,
            Told::Lost => Ok(()),
        }
    }

    /// Takes up all that is pending, and finds out what became of what no longer is.
    async fn catch_up(&mut self) -> Result<(), Failure> {
        let list = self.client.approvals().await?.value.approvals;
        let now: BTreeSet<&str> = list.iter().map(|approval| approval.id.as_str()).collect();
        let gone = self.pending.iter().filter(|id| !now.contains(id.as_str()));
        for id in gone.cloned().collect::<Vec<_>>() {
            self.look_at(&id).await?;
        }
        for approval in list {
            match approval.truncated && !self.pending.contains(&approval.id) {
                true => self.look_at(&approval.id).await?,
                false => self.take(approval)?,
            }
        }
        Ok(())
    }

    /// Something happened to this approval.
    async fn look_at(&mut self, id: &str) -> Result<(), Failure> {
        match self.client.approval(id).await {
            Ok(approval) => self.take(approval),
            // Events may tell of more than this user may see.
            Err(error @ ClientError::Refused { .. }) if !may_pass(&error) => {
                self.drop_it(id);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, approval: Received<Approval>) -> Result<(), Failure> {
        if approval.is_pending() {
            let new = self.pending.insert(approval.id.clone());
            if new && self.lines.is_some() {
                self.queue.push_back(approval);
            } else if new {
                self.show(&approval, &card(&approval, self.page))?;
            }
            return Ok(());
        }
        if !self.drop_it(&approval.id) {
            return Ok(());
        }
        self.show(&approval, &decided(&approval))
    }

    /// Whether it was known to be pending.
    fn drop_it(&mut self, id: &str) -> bool {
        if self.queue.front().is_some_and(|first| first.id == id) {
            self.interrupt();
        }
        self.queue.retain(|approval| approval.id != id);
        self.pending.remove(id)
    }

    fn show(&mut self, approval: &Received<Approval>, text: &str) -> Result<(), Failure> {
        if self.json {
            return print::line(&approval.json);
        }
        self.interrupt();
        print::text(text)
    }

    /// Leaves the line with the question, which is asked again with all that belongs to it.
    fn interrupt(&mut self) {
        if std::mem::take(&mut self.asked) {
            print::ask("\n");
        }
    }

    /// Asks about the first in the queue, unless that is being asked already.
    fn ask(&mut self) -> Result<(), Failure> {
        if let (false, Some(first)) = (self.asked, self.queue.front()) {
            let question = question(first);
            print::text(&card(first, self.page))?;
            self.forget_what_was_typed();
            print::ask(question);
            self.asked = true;
        }
        Ok(())
    }

    /// Throws away what was typed before the question is shown: it may have been meant as the answer to an earlier one.
    fn forget_what_was_typed(&mut self) {
        if !std::io::stdin().is_terminal() {
            return;
        }
        let _ = rustix::termios::tcflush(std::io::stdin(), QueueSelector::IFlush);
        // Also the lines that the reader has taken from the terminal already. An end of the input is not lost: it is
        // found again at the next read.
        while let Some(Ok(Some(_))) = next_line(&mut self.lines).now_or_never() {}
    }

    async fn answer(&mut self, line: &str) -> Result<(), Failure> {
        if !self.asked {
            return Ok(());
        }
        let Some(first) = self.queue.front() else {
            return Ok(());
        };
        let Some(said) = said(line).filter(|said| said.is_offered_for(first)) else {
            print::ask(question(first));
            return Ok(());
        };
        self.asked = false;
        let (Some(first), Said::Decided(resolution)) = (self.queue.pop_front(), said) else {
            return Ok(());
        };
        match self.client.resolve(&first.id, &resolution).await {
            Ok(approval) => {
                self.pending.remove(&first.id);
                print::text(&decided(&approval))
            }
            // No longer known, it is asked about again when the daemon is back.
            Err(error) if may_pass(&error) => {
                self.pending.remove(&first.id);
                Err(error.into())
            }
            // Not for this user, or decided by somebody else, which an event tells.
            Err(error @ ClientError::Refused { .. }) => {
                print::note(&error.to_string());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// What an answer means.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Decided(Resolution),
    Skip,
}

impl Said {
    fn is_offered_for(&self, approval: &Approval) -> bool {
        match self {
            Self::Decided(resolution) => {
                resolution.remember != Some(Remember::Always) || !approval.remember_rules.is_empty()
            }
            Self::Skip => true,
        }
    }
}

/// None where it means nothing.
fn said(line: &str) -> Option<Said> {
    let approved = |remember| {
        let mut resolution = Resolution::new(Decision::Approve);
        resolution.remember = Some(remember);
        Said::Decided(resolution)
    };
    match line.trim() {
        "a" => Some(approved(Remember::Once)),
        "A" => Some(approved(Remember::Always)),
        "d" | "D" => Some(Said::Decided(Resolution::new(Decision::Deny))),
        "s" | "S" => Some(Said::Skip),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_offered_is_an_answer() {
        let remembered = |line| match said(line) {
            Some(Said::Decided(resolution)) => (resolution.decision, resolution.remember),
            other => panic!("{other:?}"),
        };
        assert_eq!(remembered("a\n"), (Decision::Approve, Some(Remember::Once)));
        assert_eq!(remembered("A"), (Decision::Approve, Some(Remember::Always)));
        assert_eq!(remembered("d"), (Decision::Deny, None));
        assert_eq!(said(" s "), Some(Said::Skip));
        for line in ["", "aa", "yes", "always"] {
            assert_eq!(said(line), None, "{line}");
        }
    }
}
