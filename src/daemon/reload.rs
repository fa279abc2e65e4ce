use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::RecommendedWatcher;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::policy::{PolicyFiles, UnusablePolicy};
use super::signals::{Signals, Wish};
use super::state::StatePlaces;
use super::telemetry::LogFilter;
use super::{POLICY_FILE, edge_settings, service, spool_config};
use crate::api::Api;
use crate::config::{
    ConfigError, ExecutorConfig, LedgerConfig, SKILLS_DIR, SandboxConfig, Settings, SkillsConfig,
    leads_to, skills_dir, watch_files, watch_tree,
};
use crate::domain::Degradation;
use crate::pipeline::Event;

/// How long the directory must be quiet before it is read: editors and package managers write
/// several files in a row.
const QUIET: Duration = Duration::from_millis(100);

/// How long a directory that is never quiet is waited for.
const LONGEST_UNREST: Duration = Duration::from_secs(1);

/// How often two things are looked at that no watch tells of: whether a directory that could not be watched can be
/// now (it may have been missing only while it was replaced), and whether symbolic links still lead to the same files.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// That the configuration cannot be used, or the policy.
const CONFIG_INVALID: &str = "config_invalid";
const POLICY_INVALID: &str = "policy_invalid";

/// What is watched while it lasts, and what tells of changes.
type Watch = (RecommendedWatcher, mpsc::Receiver<()>);

/// The configuration in force, where it comes from, and what takes it up.
pub(super) struct Configuration {
    path: PathBuf,
    /// What the process was started with: some of it cannot change while it runs.
    started_with: Settings,
    in_force: Mutex<Arc<Settings>>,
    were_read: WereRead,
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
        tell_doubts(&path, &settings);
        if let Some(absence) = surroundings.policy_files.absence() {
            tracing::warn!("{absence}");
        }
        Self {
            were_read,
            path,
            started_with: settings.clone(),
            in_force: Mutex::new(Arc::new(settings)),
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
            spool: spool_config(settings, self.surroundings.places.spool.clone()),
            ledger: Some(LedgerConfig {
                file: self.surroundings.places.ledger.clone(),
                durability: settings.durability,
            }),
            remembered_dir: self.surroundings.policy_files.remembered.clone(),
            instance: Some(instance.to_owned()),
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

    /// Takes up changes, on disk and by signal, until a signal asks for the stop.
    pub(super) async fn follow(&self, api: &Api, signals: &mut Signals) {
        let mut files = self.watch_files();
        if let Err(error) = &files {
            let dir = self.path.parent().unwrap_or(Path::new("/"));
            tracing::info!(%error, dir = %dir.display(), "the directory of the configuration cannot be watched: changes are taken up on SIGHUP, or when it can");
        }
        let mut skills = self.watch_skills();
        let mut ends = self.leads_to();
        let mut look_again = tokio::time::interval(LOOK_AGAIN);
        look_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What was changed between the first reading and the watch.
        self.reload(api).await;
        loop {
            tokio::select! {
                wish = signals.reload_or_stop() => match wish {
                    Wish::Stop => return,
                    Wish::Reload => {
                        service::reloading();
                        (ends, files) = (self.leads_to(), self.watch_files());
                        skills = self.watch_skills();
                        self.reload(api).await;
                        let problems = api.executor.degradations();
                        service::status(&super::housekeeping::status_line(api, &problems));
                        service::reloaded();
                    }
                },
                Some(()) = changed(files.as_mut().ok()) => {
                    if let Ok((_, changes)) = &mut files {
                        quiet(changes).await;
                    }
                    // Directories and links may be others, which the old watches do not see.
                    (ends, files) = (self.leads_to(), self.watch_files());
                    skills = self.watch_skills();
                    self.reload(api).await;
                }
                _ = look_again.tick(), if files.is_err() || ends.is_some() => {
                    let before = std::mem::replace(&mut ends, self.leads_to());
                    let was_lost = files.is_err();
                    if was_lost || ends != before {
                        files = self.watch_files();
                    }
                    if files.is_ok() && (was_lost || ends != before) {
                        skills = self.watch_skills();
                        self.reload(api).await;
                    }
                }
                Some(()) = changed(skills.as_mut()) => {
                    if let Some((_, changes)) = &mut skills {
                        quiet(changes).await;
                    }
                    reload_skills(api).await;
                }
            }
        }
    }

    fn watch_files(&self) -> notify::Result<Watch> {
        watch_files(&self.path, &[POLICY_FILE, SKILLS_DIR])
    }

    fn leads_to(&self) -> Option<Vec<Option<PathBuf>>> {
        leads_to(&self.path, &[POLICY_FILE, SKILLS_DIR])
    }

    /// Watches the skills, where there are any.
    fn watch_skills(&self) -> Option<Watch> {
        let dir = self.skills_dir();
        let watch = dir.is_dir().then(|| watch_tree(&dir))?;
        watch
            .inspect_err(|error| {
                tracing::warn!(%error, dir = %dir.display(), "the skills cannot be watched: changes are taken up on SIGHUP only");
            })
            .ok()
    }

    fn read(&self) -> Result<Settings, ConfigError> {
        let was_read = &self.were_read.configuration;
        if was_read.load(Ordering::Relaxed) {
            return Settings::read(&self.path);
        }
        let Some(settings) = Settings::read_if_there(&self.path)? else {
            return Settings::shipped();
        };
        was_read.store(true, Ordering::Relaxed);
        Ok(settings)
    }

    /// Reads the files and takes up the whole of each, or nothing of it.
    async fn reload(&self, api: &Api) {
        let mut problems = self.reload_settings(api);
        problems.extend(self.reload_policy(api).await);
        api.health.set_configuration(problems);
        reload_skills(api).await;
    }

    fn reload_settings(&self, api: &Api) -> Vec<Degradation> {
        let settings = match self.read() {
            Ok(settings) => settings,
            Err(error) => {
                let detail = format!(
                    "{}; the last valid configuration stays in force",
                    error.chain()
                );
                api.executor.announce(Event::ConfigurationRefused {
                    detail: detail.clone(),
                });
                return vec![unusable(CONFIG_INVALID, detail, &self.path)];
            }
        };
        let restart = self.started_with.needs_restart(&settings);
        let problems = restart.iter().map(|key| Degradation {
            code: "restart_needed",
            detail: format!("the change of `{key}` takes a restart of the daemon"),
            source: self.path.display().to_string(),
        });
        let problems = problems.collect();
        if *self.settings() == settings {
            if was_refused(api, CONFIG_INVALID) {
                tracing::info!(path = %self.path.display(), "the configuration is valid again, and the one that is in force");
                api.executor.announce(Event::ConfigurationReloaded);
            }
            return problems;
        }
        tell_doubts(&self.path, &settings);
        let instance = api.executor.config().instance.clone().unwrap_or_default();
        api.executor
            .reconfigure(self.executor_config(&settings, &instance));
        api.edge.replace(edge_settings(&settings));
        self.surroundings.filter.set(&settings.log.level);
        *self.in_force.lock() = Arc::new(settings);
        tracing::info!(path = %self.path.display(), "took up a changed configuration");
        api.executor.announce(Event::ConfigurationReloaded);
        for key in restart {
            tracing::warn!("the change of `{key}` takes a restart of the daemon");
        }
        problems
    }

    async fn reload_policy(&self, api: &Api) -> Option<Degradation> {
        let files = self.surroundings.policy_files.clone();
        let was_read = &self.were_read.policy;
        let must_exist = was_read.load(Ordering::Relaxed);
        let settings = self.settings();
        let was_refused = was_refused(api, POLICY_INVALID);
        let amendment = api.executor.amend_policy().await;
        // There may be many that were remembered.
        let read = move || files.read(must_exist, &settings.executor.files);
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
                } else if was_refused {
                    tracing::info!(path = %path.display(), rules, "the policy is valid again, and the one that is in force");
                }
                if is_news || was_refused {
                    api.executor.announce(Event::PolicyReloaded { rules });
                }
                None
            }
            Err(error) => {
                let detail = format!("{}; {}", error.chain(), error.meanwhile());
                api.executor.announce(Event::PolicyRefused {
                    detail: detail.clone(),
                });
                Some(unusable(POLICY_INVALID, detail, error.path()))
            }
        }
    }
}

/// Waits until nothing has changed for a moment, though not for good where something always does.
async fn quiet(changes: &mut mpsc::Receiver<()>) {
    let patience = tokio::time::Instant::now() + LONGEST_UNREST;
    while let Ok(Some(())) = tokio::time::timeout(QUIET, changes.recv()).await {
        if tokio::time::Instant::now() >= patience {
            return;
        }
    }
}

/// The next change of what is watched; for good none where nothing is.
async fn changed(watch: Option<&mut Watch>) -> Option<()> {
    match watch {
        Some((_, changes)) => changes.recv().await,
        None => std::future::pending().await,
    }
}

/// Reads the skills anew, which takes a while where there are many: not on the event loop.
async fn reload_skills(api: &Api) {
    let executor = api.executor.clone();
    // Only a panic makes this fail, of which the log tells; the skills stay as they were.
    let _ = tokio::task::spawn_blocking(move || executor.load_skills()).await;
    // Only now is known which tools there are.
    for doubt in api.executor.unknown_tools() {
        tracing::warn!("{doubt}");
    }
}

/// Whether what was there until now could not be used. Who heard of that is to hear that it is over.
fn was_refused(api: &Api, code: &str) -> bool {
    let problems = api.health.configuration();
    problems.iter().any(|problem| problem.code == code)
}

/// Says that a file cannot be used, and what that means.
fn unusable(code: &'static str, detail: String, path: &Path) -> Degradation {
    tracing::error!(path = %path.display(), "{detail}");
    Degradation {
        code,
        detail,
        source: path.display().to_string(),
    }
}

fn tell_doubts(path: &Path, settings: &Settings) {
    if path.exists() {
        for doubt in settings.doubts() {
            tracing::warn!(path = %path.display(), "{doubt}");
        }
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
