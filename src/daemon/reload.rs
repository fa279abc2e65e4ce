use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;

use super::policy::{PolicyFiles, UnusablePolicy, with_confirmation};
use super::signals::{Signals, Wish};
use super::state::StatePlaces;
use super::telemetry::LogFilter;
use super::{POLICY_FILE, edge_settings, service, spool_config};
use crate::api::Api;
use crate::config::{
    ConfigError, ExecutorConfig, LedgerConfig, SKILLS_DIR, SandboxConfig, Settings, SkillsConfig,
    Watch, leads_to, skills_dir, watch_files, watch_tree,
};
use crate::domain::Degradation;
use crate::pipeline::{Event, beside};

/// How long the directory must be quiet before it is read: editors and package managers write
/// several files in a row.
const QUIET: Duration = Duration::from_millis(100);

/// How long a directory that is never quiet is waited for.
const LONGEST_UNREST: Duration = Duration::from_secs(1);

/// How long a file is waited for that somebody has written a part of: the other part may say what is forbidden.
const LONGEST_WRITING: Duration = Duration::from_secs(10);

/// How often three things are looked at that no watch tells of: whether a directory that could not be watched can be
/// now (it may have been missing only while it was replaced), whether symbolic links still lead to the same files, and
/// whether a file that could not be read can be (there may have been no descriptors left).
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// That the configuration cannot be used, or the policy.
const CONFIG_INVALID: &str = "config_invalid";
const POLICY_INVALID: &str = "policy_invalid";

/// That a change takes a restart.
const RESTART_NEEDED: &str = "restart_needed";

/// What else is read of the directory.
const BESIDE_IT: &[&str] = &[POLICY_FILE, SKILLS_DIR];

/// Why files are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// SIGHUP.
    Signal,
    Files,
    Skills,
    /// There is something that no watch tells of.
    Time,
}

/// What is watched, and what no watch tells of.
struct Watched {
    /// The configuration and what is beside it.
    files: notify::Result<Watch>,
    /// Skills, where there are any.
    skills: Option<Watch>,
    /// Where links on the way to the files lead.
    ends: Ends,
}

type Ends = Option<Vec<Option<PathBuf>>>;

/// The configuration in force, where it comes from, and what takes it up.
pub(super) struct Configuration {
    path: PathBuf,
    /// What the process was started with: some of it cannot change while it runs.
    started_with: Settings,
    in_force: Mutex<Arc<Settings>>,
    were_read: WereRead,
    /// Whether there is a file that could not be read last.
    is_unread: AtomicBool,
    surroundings: Surroundings,
}

/// Which files have been read, as opposed to what is built in. From then on there has to be one: a file that is
/// gone does not mean that everything in it is revoked.
#[derive(Default)]
pub(super) struct WereRead {
    pub configuration: AtomicBool,
    pub policy: AtomicBool,
}

/// What a daemon has around its configuration.
pub(super) struct Surroundings {
    pub policy_files: PolicyFiles,
    pub places: StatePlaces,
    pub filter: LogFilter,
    /// Where it can be reached.
    pub socket: PathBuf,
}

impl Configuration {
    pub(super) fn new(
        path: PathBuf,
        settings: Settings,
        were_read: WereRead,
        surroundings: Surroundings,
    ) -> Self {
        if let Some(absence) = surroundings.policy_files.absence() {
            tracing::warn!("{absence}");
        }
        Self {
            were_read,
            path,
            started_with: settings.clone(),
            in_force: Mutex::new(Arc::new(settings)),
            is_unread: AtomicBool::new(false),
            surroundings,
        }
    }

    /// What is in force.
    pub(super) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.in_force.lock())
    }

    /// The executor's part of `settings`, with what only the daemon knows.
    pub(super) fn executor_config(&self, settings: &Settings, instance: &str) -> ExecutorConfig {
        ExecutorConfig {
            state_dir: Some(self.surroundings.places.dir.clone()),
            spool: spool_config(settings, self.surroundings.places.spool.clone()),
            ledger: Some(LedgerConfig {
                file: self.surroundings.places.ledger.clone(),
                durability: settings.durability,
            }),
            remembered_dir: self.surroundings.policy_files.remembered.clone(),
            instance: Some(instance.to_owned()),
            own_files: vec![
                self.path.clone(),
                self.path.with_file_name("policy.toml"),
                self.path.with_file_name("tools.toml"),
                self.skills_dir(),
            ],
            tools_file: Some(self.path.with_file_name("tools.toml")),
            skills: SkillsConfig {
                dir: Some(self.skills_dir()),
                ..settings.executor.skills.clone()
            },
            socket: Some(self.surroundings.socket.clone()),
            sandbox: SandboxConfig {
                dir: Some(self.surroundings.places.sandbox.clone()),
                init: sandbox_init(),
                ..settings.executor.sandbox.clone()
            },
            ..settings.executor.clone()
        }
    }

    fn skills_dir(&self) -> PathBuf {
        skills_dir(&self.path)
    }

    /// Takes up changes, on disk and by signal, until a signal asks for the stop. That waits for none which is being
    /// taken up: a file system may not answer.
    pub(super) async fn follow(&self, api: &Api, signals: &mut Signals) {
        self.tell_doubts(self.settings());
        let mut watched = tokio::select! {
            watched = self.begin(api) => watched,
            () = signals.stop() => return,
        };
        let mut look_again = tokio::time::interval(LOOK_AGAIN);
        look_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let looks_again = watched.files.is_err()
                || watched.ends.is_some()
                || self.is_unread.load(Ordering::Relaxed);
            let cause = tokio::select! {
                wish = signals.reload_or_stop() => match wish {
                    Wish::Stop => return,
                    Wish::Reload => Cause::Signal,
                },
                Some(()) = changed(watched.files.as_mut().ok()) => Cause::Files,
                _ = look_again.tick(), if looks_again => Cause::Time,
                Some(()) = changed(watched.skills.as_mut()) => Cause::Skills,
            };
            tokio::select! {
                () = self.take_up(cause, &mut watched, api) => {}
                () = signals.stop() => return,
            }
        }
    }

    async fn begin(&self, api: &Api) -> Watched {
        let _reading = api.health.begin_reading(&self.path);
        let watched = self.watch().await;
        if let Err(error) = &watched.files {
            let dir = self.path.parent().unwrap_or(Path::new("/"));
            tracing::info!(%error, dir = %dir.display(), "the directory of the configuration cannot be watched: changes are taken up on SIGHUP, or when it can");
        }
        // What was changed between the first reading and the watch.
        self.reload(Cause::Files, api).await;
        watched
    }

    async fn take_up(&self, cause: Cause, watched: &mut Watched, api: &Api) {
        match cause {
            Cause::Files => quiet(watched.files.as_mut().ok()).await,
            Cause::Skills => quiet(watched.skills.as_mut()).await,
            Cause::Signal | Cause::Time => {}
        }
        let _reading = api.health.begin_reading(&self.path);
        match cause {
            Cause::Signal => {
                service::reloading();
                *watched = self.watch().await;
                self.reload(cause, api).await;
                let problems = api.executor.degradations().await;
                service::status(&super::housekeeping::status_line(api, &problems));
                service::reloaded();
            }
            Cause::Files => {
                // Directories and links may be others, which the old watches do not see.
                *watched = self.watch().await;
                self.reload(cause, api).await;
            }
            Cause::Time => {
                let (path, before) = (self.path.clone(), watched.ends.clone());
                let was_lost = watched.files.is_err();
                let (now, files) = beside(move || {
                    let now = ends(&path);
                    let is_other = was_lost || now != before;
                    let files = is_other.then(|| watch_files(&path, BESIDE_IT));
                    let now = files.as_ref().map_or(now, |_| ends(&path));
                    (now, files)
                })
                .await;
                watched.ends = now;
                if let Some(files) = files {
                    watched.files = files;
                    if watched.files.is_ok() {
                        let dir = self.skills_dir();
                        watched.skills = beside(move || watch_skills(&dir)).await;
                        return self.reload(cause, api).await;
                    }
                }
                if self.is_unread.load(Ordering::Relaxed) {
                    self.reload(cause, api).await;
                }
            }
            Cause::Skills => self.reload_skills(api).await,
        }
    }

    /// Watches the files, and the skills where there are any.
    async fn watch(&self) -> Watched {
        let (path, skills) = (self.path.clone(), self.skills_dir());
        beside(move || {
            let files = watch_files(&path, BESIDE_IT);
            Watched {
                // Behind that: a link that comes in between is one that the watch may not have seen.
                ends: ends(&path),
                files,
                skills: watch_skills(&skills),
            }
        })
        .await
    }

    async fn read(&self) -> Result<Settings, ConfigError> {
        let was_read = &self.were_read.configuration;
        let (path, must_exist) = (self.path.clone(), was_read.load(Ordering::Relaxed));
        // Names of users are looked up on the way, where a directory service may take its time.
        let read = beside(move || match must_exist {
            true => Settings::read_again(&path).map(Some),
            false => Settings::read_if_there(&path),
        });
        let Some(settings) = read.await? else {
            return Settings::shipped();
        };
        was_read.store(true, Ordering::Relaxed);
        Ok(settings)
    }

    /// Logs what is doubtful about `settings` and about the files, which takes a look at those and at directories that
    /// they name.
    fn tell_doubts(&self, settings: Arc<Settings>) {
        let path = self.path.clone();
        drop(tokio::task::spawn_blocking(move || {
            if path.exists() {
                for doubt in settings.doubts() {
                    tracing::warn!(path = %path.display(), "{doubt}");
                }
            }
        }));
        self.tell_foreign_hands();
    }

    fn tell_foreign_hands(&self) {
        let path = self.path.clone();
        let policy_files = self.surroundings.policy_files.clone();
        drop(tokio::task::spawn_blocking(move || {
            for doubt in policy_files.foreign_hands(&path) {
                tracing::warn!("{doubt}");
            }
        }));
    }

    /// Reads the files and takes up the whole of each, or nothing of it.
    async fn reload(&self, cause: Cause, api: &Api) {
        self.is_unread.store(false, Ordering::Relaxed);
        let mut problems = self.reload_settings(cause, api).await;
        problems.extend(self.reload_policy(cause, api).await);
        api.health.set_configuration(problems);
        // Who tries again each second does not tell of them as often.
        if cause != Cause::Time || !self.is_unread.load(Ordering::Relaxed) {
            self.reload_skills(api).await;
        }
    }

    /// Reads the skills anew, which takes a while where there are many: not on the event loop.
    async fn reload_skills(&self, api: &Api) {
        let executor = api.executor.clone();
        // Only a panic makes this fail, of which the log tells; the skills stay as they were.
        let read = tokio::task::spawn_blocking(move || executor.load_skills()).await;
        if matches!(read, Ok(false)) {
            self.is_unread.store(true, Ordering::Relaxed);
            return;
        }
        // Only now is known which tools there are.
        for doubt in api.executor.unknown_tools() {
            tracing::warn!("{doubt}");
        }
    }

    async fn reload_settings(&self, cause: Cause, api: &Api) -> Vec<Degradation> {
        let settings = match self.read().await {
            Ok(settings) => Arc::new(settings),
            Err(error) => {
                let is_unread = matches!(error, ConfigError::Unreadable { .. });
                self.is_unread.fetch_or(is_unread, Ordering::Relaxed);
                let detail = format!(
                    "{}; the last valid configuration stays in force",
                    error.chain()
                );
                let problem = unusable(CONFIG_INVALID, detail, &self.path);
                if tell(&problem, cause, api) {
                    let detail = problem.detail.clone();
                    let refused = Event::ConfigurationRefused { detail };
                    api.executor.announce(refused);
                }
                // What was changed before still waits for it.
                let mut problems = api.health.configuration();
                problems.retain(|problem| problem.code == RESTART_NEEDED);
                problems.push(problem);
                return problems;
            }
        };
        let restart = self.started_with.needs_restart(&settings);
        let problems = restart.iter().map(|key| Degradation {
            code: RESTART_NEEDED,
            detail: format!("the change of `{key}` takes a restart of the daemon"),
            source: self.path.display().to_string(),
        });
        let problems = problems.collect();
        if self.settings() == settings {
            if was_refused(api, CONFIG_INVALID) {
                tracing::info!(path = %self.path.display(), "the configuration is valid again, and the one that is in force");
                api.executor.announce(Event::ConfigurationReloaded);
            }
            return problems;
        }
        self.tell_doubts(Arc::clone(&settings));
        let instance = api.executor.config().instance.clone().unwrap_or_default();
        api.executor
            .reconfigure(self.executor_config(&settings, &instance));
        api.edge.replace(edge_settings(&settings));
        self.surroundings.filter.set(&settings.log.level);
        *self.in_force.lock() = settings;
        tracing::info!(path = %self.path.display(), "took up a changed configuration");
        api.executor.announce(Event::ConfigurationReloaded);
        for key in restart {
            tracing::warn!("the change of `{key}` takes a restart of the daemon");
        }
        problems
    }

    async fn reload_policy(&self, cause: Cause, api: &Api) -> Option<Degradation> {
        let files = self.surroundings.policy_files.clone();
        let was_read = &self.were_read.policy;
        let must_exist = was_read.load(Ordering::Relaxed);
        let settings = self.settings();
        let was_refused = was_refused(api, POLICY_INVALID);
        let amendment = api.executor.amend_policy().await;
        // There may be many that were remembered.
        let read = {
            let settings = Arc::clone(&settings);
            move || files.read(must_exist, &settings.executor.files)
        };
        let read = tokio::task::spawn_blocking(read).await;
        let path = &self.surroundings.policy_files.path;
        match read.unwrap_or_else(|error| Err(UnusablePolicy::panicked(path, error))) {
            Ok(policy) => {
                was_read.fetch_or(policy.main_file().is_some(), Ordering::Relaxed);
                let before = amendment.policy();
                let is_news = !before.reads_like(&policy);
                // Whom its names stand for may have changed, too.
                let policy = policy.with_session_of(&before);
                let rules = policy.rule_count();
                amendment.put_in_force(policy);
                if is_news {
                    tracing::info!(path = %path.display(), rules, "took up a changed policy");
                    self.tell_foreign_hands();
                } else if was_refused {
                    tracing::info!(path = %path.display(), rules, "the policy is valid again, and the one that is in force");
                }
                if is_news || was_refused {
                    api.executor.announce(Event::PolicyReloaded { rules });
                }
                None
            }
            Err(error) => {
                let is_unread = matches!(error, UnusablePolicy::Unreadable { .. });
                self.is_unread.fetch_or(is_unread, Ordering::Relaxed);
                let detail = format!("{}; {}", error.chain(), error.meanwhile());
                let in_force = amendment.policy();
                let confirmed =
                    beside(move || with_confirmation(&in_force, &settings.executor.files)).await;
                match confirmed {
                    Ok(policy) if policy.reads_like(&amendment.policy()) => {}
                    Ok(policy) => amendment.put_in_force(policy),
                    Err(error) => tracing::error!(%error, "[files] is not taken up"),
                }
                let problem = unusable(POLICY_INVALID, detail, error.path());
                if tell(&problem, cause, api) {
                    let detail = problem.detail.clone();
                    api.executor.announce(Event::PolicyRefused { detail });
                }
                Some(problem)
            }
        }
    }
}

fn ends(path: &Path) -> Ends {
    leads_to(path, BESIDE_IT)
}

fn watch_skills(dir: &Path) -> Option<Watch> {
    let watch = dir.is_dir().then(|| watch_tree(dir))?;
    watch
        .inspect_err(|error| {
            tracing::warn!(%error, dir = %dir.display(), "the skills cannot be watched: changes are taken up on SIGHUP only");
        })
        .ok()
}

/// Waits until nothing has changed for a moment, though not for good where something always does.
async fn quiet(watch: Option<&mut Watch>) {
    let Some(watch) = watch else {
        return;
    };
    let begun = tokio::time::Instant::now();
    loop {
        let more = tokio::time::timeout(QUIET, watch.changed()).await;
        let patience = match more {
            _ if watch.is_written_to() => LONGEST_WRITING,
            Ok(Some(())) => LONGEST_UNREST,
            Ok(None) | Err(_) => return,
        };
        if begun.elapsed() >= patience {
            return;
        }
    }
}

/// The next change of what is watched; for good none where nothing is.
async fn changed(watch: Option<&mut Watch>) -> Option<()> {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Whether what was there until now could not be used. Who heard of that is to hear that it is over.
fn was_refused(api: &Api, code: &str) -> bool {
    let problems = api.health.configuration();
    problems.iter().any(|problem| problem.code == code)
}

/// Logs that a file cannot be used, unless it was only tried again and could not be for the same reason before; says
/// whether it did.
fn tell(problem: &Degradation, cause: Cause, api: &Api) -> bool {
    let is_news = cause != Cause::Time || !api.health.configuration().contains(problem);
    if is_news {
        tracing::error!(path = %problem.source, "{}", problem.detail);
    }
    is_news
}

/// That a file cannot be used, and what that means.
fn unusable(code: &'static str, detail: String, path: &Path) -> Degradation {
    Degradation {
        code,
        detail,
        source: path.display().to_string(),
    }
}

/// The first process of sandboxes, which the package puts where programs are that nobody calls by
/// hand (hier(7)); one that is not installed has it beside itself.
fn sandbox_init() -> PathBuf {
    const NAME: &str = "shelly-sandbox-init";
    let this = std::env::current_exe().unwrap_or_default();
    let beside = this.with_file_name(NAME);
    if beside.exists() {
        return beside;
    }
    Path::new("/usr/libexec/shelly-executor").join(NAME)
}
