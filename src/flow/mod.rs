//! How much happens at once and how often: rates, places and the queues for them, circuit breakers.
//! It decides on tools, callers and tenants by name, and has not heard of executions.

mod breaker;
mod places;
mod rates;
mod redis;
mod refusal;
mod server;
mod shares;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

pub use breaker::CircuitState;
pub(crate) use breaker::Verdict;
pub(crate) use places::{Origin, Party};
pub(crate) use refusal::{Charge, Limited, NoPlace, Open, Whose};
pub use snapshot::{FlowSnapshot, Refusals, ToolFlowSnapshot};

use crate::config::{FlowBackend, FlowConfig};
use breaker::{Breakers, Pass};
use places::{Entered, Places, Ticket};
use rates::Rates;
use server::Server;
use snapshot::Counters;

/// All that is kept of the flow of calls. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Where it is, for who looks at what daemons share.
    host: String,
    started: Instant,
    /// Whether there is any limit: all that is looked at where there is none.
    is_limited: AtomicBool,
    config: RwLock<Arc<FlowConfig>>,
    rates: Mutex<Rates>,
    server: Mutex<Option<Arc<Server>>>,
    queues: Mutex<Queues>,
    breakers: Mutex<Breakers>,
    refused: Counters,
}

#[derive(Debug, Default)]
struct Queues {
    places: Places,
    /// Those who wait to be told that they have a place.
    told: HashMap<Ticket, oneshot::Sender<()>>,
}

/// What came of the wish for a place.
pub(crate) enum Entry {
    Placed(Place),
    Waits(Waiting),
}

/// A place to run in, given up when this is dropped.
pub(crate) struct Place {
    shared: Arc<Shared>,
    ticket: Ticket,
}

/// A wait for a place, given up when this is dropped.
pub(crate) struct Waiting {
    place: Place,
    told: oneshot::Receiver<()>,
    tool: String,
}

/// A call that a circuit lets through. When this is dropped it has said nothing of the tool.
pub(crate) struct Passage {
    shared: Arc<Shared>,
    tool: String,
    pass: Pass,
    is_recorded: bool,
}

impl Flow {
    /// `host` is what it is known as in a server that several daemons share.
    pub(crate) fn new(config: &FlowConfig, host: String) -> Self {
        let shared = Shared {
            host,
            started: Instant::now(),
            is_limited: AtomicBool::default(),
            config: RwLock::default(),
            rates: Mutex::default(),
            server: Mutex::default(),
            queues: Mutex::default(),
            breakers: Mutex::default(),
            refused: Counters::default(),
        };
        let flow = Self {
            shared: Arc::new(shared),
        };
        flow.configure(config);
        flow
    }

    /// Puts other limits in force, for those who wait as well.
    pub(crate) fn configure(&self, config: &FlowConfig) {
        let shared = &self.shared;
        let config = Arc::new(config.clone());
        let mut queues = shared.queues.lock();
        queues.places.configure(&config);
        queues.advance(shared.now());
        drop(queues);
        let is_limited = config.is_limited();
        // At once for who holds the circuits: an ending that is told of in between would leave one that no tool has.
        let mut breakers = shared.breakers.lock();
        breakers.retain(|tool| config.tool(tool).breaker.is_some());
        *shared.config.write() = config;
        drop(breakers);
        shared.is_limited.store(is_limited, Ordering::Release);
        self.set_server();
    }

    /// Has rates and shared places kept where the configuration says.
    fn set_server(&self) {
        let shared = &self.shared;
        let config = shared.config();
        let mut server = shared.server.lock();
        *server = match (&config.backend, server.take()) {
            (FlowBackend::Redis(address), Some(known)) if known.is_at(address) => Some(known),
            (backend, _) => {
                let mut queues = shared.queues.lock();
                queues.places.share_anew(shared.name());
                match backend {
                    FlowBackend::Memory => {
                        queues.places.keep_alone();
                        queues.advance(shared.now());
                        None
                    }
                    FlowBackend::Redis(address) => {
                        let weak = Arc::downgrade(shared);
                        Some(Arc::new(Server::new(address.clone(), weak)))
                    }
                }
            }
        };
        if let Some(server) = &*server {
            // Where it can be: looked for before the first call comes.
            server.places_changed();
        }
    }

    /// Whether there is any limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.shared.is_limited.load(Ordering::Acquire)
    }

    /// The limits in force.
    pub(crate) fn config(&self) -> Arc<FlowConfig> {
        self.shared.config()
    }

    /// Takes a call of the tool out of the buckets that it concerns, or out of none. Who calls and
    /// for whom counts for calls from outside: what comes of one is bounded by `skills.max_calls`.
    pub(crate) async fn charge(
        &self,
        tool: &str,
        party: &Party,
        origin: Origin,
    ) -> Result<(), Limited> {
        let charges = self.charges(tool, party, origin);
        if charges.is_empty() {
            return Ok(());
        }
        let shared = &self.shared;
        let taken = match shared.take_shared(&charges).await {
            Some(taken) => taken,
            None => shared.rates.lock().take(&charges, shared.now()),
        };
        taken.inspect_err(|limited| shared.refused.limited(&limited.charge.whose))
    }

    fn charges(&self, tool: &str, party: &Party, origin: Origin) -> Vec<Charge> {
        let config = self.config();
        let charge = |whose, rate| Charge { whose, rate };
        let of_tool = config.tool(tool).rate;
        let of_tool = of_tool.map(|rate| charge(Whose::Tool(tool.to_owned()), rate));
        let mut charges = Vec::from_iter(of_tool);
        if origin == Origin::Outside {
            let of_caller = config.caller_rate;
            charges.extend(of_caller.map(|rate| charge(Whose::Caller(party.uid), rate)));
            let of_tenant = config.tenant_rate.zip(party.tenant.clone());
            charges.extend(of_tenant.map(|(rate, id)| charge(Whose::Tenant(id), rate)));
        }
        charges
    }

    /// Asks for a place to run in.
    pub(crate) fn enter(&self, tool: &str, party: Party, origin: Origin) -> Result<Entry, NoPlace> {
        let shared = &self.shared;
        let mut queues = shared.queues.lock();
        let place = |ticket| Place {
            shared: Arc::clone(shared),
            ticket,
        };
        match queues.places.enter(tool, party, origin, shared.now()) {
            Entered::Placed(ticket) => Ok(Entry::Placed(place(ticket))),
            Entered::Waits(ticket) => {
                let (tell, told) = oneshot::channel();
                queues.told.insert(ticket, tell);
                let is_sharing = queues.places.is_sharing();
                drop(queues);
                shared.places_changed(is_sharing);
                Ok(Entry::Waits(Waiting {
                    place: place(ticket),
                    told,
                    tool: tool.to_owned(),
                }))
            }
            Entered::Full { retry_after } => {
                shared.refused.no_place();
                Err(NoPlace::QueueFull {
                    queue_max: shared.config().queue_max,
                    retry_after,
                })
            }
        }
    }

    /// Whether the tool's circuit would let a call through now.
    pub(crate) fn look(&self, tool: &str) -> Result<(), Open> {
        let shared = &self.shared;
        let open = shared.breakers.lock().look(tool, shared.now());
        open.inspect_err(|_| shared.refused.open())
    }

    /// Lets a call through the tool's circuit; `None` where there is none.
    pub(crate) fn pass(&self, tool: &str) -> Result<Option<Passage>, Open> {
        let shared = &self.shared;
        let mut breakers = shared.breakers.lock();
        if shared.config().tool(tool).breaker.is_none() {
            return Ok(None);
        }
        let pass = breakers.enter(tool, shared.now());
        drop(breakers);
        let pass = pass.inspect_err(|_| shared.refused.open())?;
        Ok(Some(Passage {
            shared: Arc::clone(shared),
            tool: tool.to_owned(),
            pass,
            is_recorded: false,
        }))
    }

    /// What is wrong with the server that several daemons share, if something is.
    pub(crate) fn problem(&self) -> Option<String> {
        let server = self.shared.server.lock().clone();
        server.and_then(|server| server.redis()?.problem())
    }

    /// How everything stands.
    pub(crate) fn snapshot(&self) -> FlowSnapshot {
        FlowSnapshot::of(&self.shared)
    }
}

impl Shared {
    /// The time since it was made.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// What the server says, if there is one and it can be asked.
    async fn take_shared(&self, charges: &[Charge]) -> Option<Result<(), Limited>> {
        let server = self.server.lock().clone()?;
        let taken = server.redis()?.take(charges).await.ok()?;
        if taken.is_ok() {
            // When the server is gone it goes on from here.
            self.rates.lock().note(charges, self.now());
        }
        Some(taken)
    }

    /// Whether the server can be asked, if there is one.
    fn server_up(&self) -> Option<bool> {
        Some(self.server.lock().as_ref()?.is_well())
    }

    /// Has the server told that other places are wanted, or others to be had, if it shares any out.
    fn places_changed(&self, is_sharing: bool) {
        if is_sharing && let Some(server) = &*self.server.lock() {
            server.places_changed();
        }
    }

    /// A name that no other has among those that share places, nor had.
    fn name(&self) -> String {
        format!("{}/{}", self.host, uuid::Uuid::now_v7())
    }

    fn config(&self) -> Arc<FlowConfig> {
        Arc::clone(&self.config.read())
    }
}

impl Queues {
    /// Tells those who have got a place.
    fn advance(&mut self, now: Duration) {
        while let Some(ticket) = self.places.advance(now) {
            // Who does not listen any more is about to give it up.
            self.told.remove(&ticket).map(|tell| tell.send(()));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.shared.now();
        let mut queues = self.shared.queues.lock();
        queues.told.remove(&self.ticket);
        queues.places.leave(self.ticket, now);
        queues.advance(now);
        let is_sharing = queues.places.is_sharing();
        drop(queues);
        self.shared.places_changed(is_sharing);
    }
}

impl Waiting {
    /// Waits for the place, as long as it is waited for.
    pub(crate) async fn wait(self) -> Result<Place, NoPlace> {
        let Self { place, told, tool } = self;
        let waited = place.shared.config().queue_timeout;
        match tokio::time::timeout(waited, told).await {
            Ok(_) => Ok(place),
            Err(_) => {
                place.shared.refused.no_place();
                let retry_after = place.shared.queues.lock().places.usual_wait(&tool);
                Err(NoPlace::TooLong {
                    waited,
                    retry_after,
                })
            }
        }
    }
}

impl Passage {
    /// Whether it is the one call that shows whether others may follow.
    pub(crate) fn is_trial(&self) -> bool {
        self.pass == Pass::Trial
    }

    /// Says what came of it; returns where the circuit stands then, if that is somewhere else.
    pub(crate) fn record(mut self, verdict: Verdict) -> Option<CircuitState> {
        self.is_recorded = true;
        self.tell(verdict)
    }

    fn tell(&self, verdict: Verdict) -> Option<CircuitState> {
        let shared = &self.shared;
        let mut breakers = shared.breakers.lock();
        // It may have been taken out of the configuration meanwhile.
        let config = shared.config().tool(&self.tool).breaker?;
        breakers.record(&self.tool, self.pass, verdict, &config, shared.now())
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.tell(Verdict::Nothing);
        }
    }
}
