//! The configuration that is in force, and the effects of a changed one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use super::configuration_changes::ConfigurationChanges;
use super::parts::{lines, restart_required};
use super::reload::{WaitingConfiguration, openings};
use super::{ConfigurationNotes, Reach};
use sekisho_calls::policy::Policy;
use sekisho_config::{
    ChangesMode, Config, ConfigError, ConsoleRole, Environment, Opening, Setting, SettingSource, UnknownName,
    dotenv_files,
};
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};

/// The effects of a changed configuration.
#[derive(Debug, Default)]
pub struct ConfigurationCheck {
    /// Why it would not be taken over.
    pub problems: Vec<String>,
    /// The settings that would change: before and after.
    pub changes: Vec<(Option<Setting>, Option<Setting>)>,
    /// The parts that it would open, for which it would wait for a person.
    pub opens: Vec<Opening>,
    /// Topics of which a change takes effect at the next start.
    pub restart_required: Vec<&'static str>,
    /// Setting → advice.
    pub notes: BTreeMap<String, String>,
}

/// The configuration in force, and the rights of callers by it.
#[derive(Debug)]
pub struct Configuration {
    current: ArcSwap<Config>,
    /// The configuration of the start, of which some topics stay until the next one.
    started_with: Config,
    /// The topics of that configuration that have changed since.
    restart_required: ArcSwap<Vec<&'static str>>,
    /// A changed configuration that waits for a person.
    waiting: ArcSwapOption<WaitingConfiguration>,
}

impl Configuration {
    pub(super) fn new(config: Config) -> Self {
        Self {
            started_with: config.clone(),
            current: ArcSwap::from_pointee(config),
            restart_required: ArcSwap::default(),
            waiting: ArcSwapOption::default(),
        }
    }

    /// The one in force, for a moment.
    pub fn current(&self) -> Guard<Arc<Config>> {
        self.current.load()
    }

    /// The one in force, for as long as it is needed.
    pub(super) fn current_arc(&self) -> Arc<Config> {
        self.current.load_full()
    }

    /// The one of the start.
    pub fn started_with(&self) -> &Config {
        &self.started_with
    }

    /// The topics whose change takes effect at the next start.
    pub(super) fn restart_required(&self) -> Guard<Arc<Vec<&'static str>>> {
        self.restart_required.load()
    }

    /// The topics that this configuration changes and that stay until the next start.
    pub(super) fn require_restart(&self, next: &Config) {
        let pending = restart_required(&self.started_with, next);
        for topic in &pending {
            tracing::warn!(topic, "a change of this topic takes effect at the next start");
        }
        self.restart_required.store(Arc::new(pending));
    }

    /// Puts this configuration in force.
    pub(super) fn replace(&self, config: Config) {
        self.current.store(Arc::new(config));
    }

    /// Has a changed configuration wait for a person; whether it waited before.
    pub(super) fn hold(&self, waiting: WaitingConfiguration) -> bool {
        let is_known = self.waiting.load().as_ref().is_some_and(|known| known.config == waiting.config);
        self.waiting.store(Some(Arc::new(waiting)));
        is_known
    }

    /// None waits any more.
    pub(super) fn forget_waiting(&self) {
        self.waiting.store(None);
    }

    /// The parts that the waiting configuration opens, if one waits.
    pub fn waiting_openings(&self) -> Vec<Opening> {
        self.waiting.load().as_ref().map(|waiting| waiting.opens.clone()).unwrap_or_default()
    }

    /// Each setting in force, and where it was set.
    /// Errors: `denied` to all but administrators of the tenant `default`: it is about all tenants.
    pub fn settings(&self, caller: &Caller) -> Result<Vec<Setting>, CallError> {
        self.require_all_tenants(caller)?;
        Ok(self.current().set.with_defaults())
    }

    /// The file of the configuration, if there is one.
    pub fn file(&self) -> Option<PathBuf> {
        self.started_with.file.clone()
    }

    /// The files that are the configuration, and its policies.
    pub fn files(&self, config_file: Option<&Path>) -> Vec<PathBuf> {
        let config = self.current();
        let own = config_file.into_iter().map(Path::to_owned).chain(dotenv_files(config_file));
        let named = config.mcp_files().into_iter().chain(config.references.files.iter().cloned());
        own.chain(named).chain(config.policy.directory.clone()).chain(config.policy.shadow.clone()).collect()
    }

    /// The caller's roles in the console.
    pub fn console_roles(&self, caller: &Caller) -> Vec<ConsoleRole> {
        self.current().console.roles_of(caller)
    }

    /// The reach of a caller: whose calls it sees.
    pub fn reach(&self, caller: &Caller) -> Reach {
        let roles = self.console_roles(caller);
        match roles.contains(&ConsoleRole::Admin) {
            true if caller.is_of_default() => Reach::AllTenants,
            _ if roles.is_empty() => Reach::Own,
            _ => Reach::Tenant,
        }
    }

    fn require_all_tenants(&self, caller: &Caller) -> Result<(), CallError> {
        if self.reach(caller) == Reach::AllTenants {
            return Ok(());
        }
        let message =
            "the configuration is about all tenants: it is shown to administrators of the tenant `default` alone";
        Err(CallError::new(ErrorCode::Denied, message))
    }
}

impl ConfigurationNotes {
    /// Checks a text as the content of the configuration's file, or without one the file as it is now. Nothing is taken
    /// over. For a text, values of variables, files and programs are not read.
    /// Errors: `denied` to all but administrators of the tenant `default`; `not_found` without a text and a file.
    pub async fn check(&self, caller: &Caller, text: Option<String>) -> Result<ConfigurationCheck, CallError> {
        self.configuration.require_all_tenants(caller)?;
        let file = self.configuration.file();
        let (running, started) = (self.configuration.current_arc(), self.configuration.started_with.clone());
        let changes = ConfigurationChanges::new(&self.store).in_force().await;
        let pipeline = Arc::clone(&self.pipeline);
        // Reads files.
        let checked = tokio::task::spawn_blocking(move || {
            let config = read(file.as_deref(), text, &running.mcp_files())?.and_then(|config| {
                // A file that leaves them out need not fit them.
                let is_alone = config.config.changes == ChangesMode::ReadOnly;
                let changes = changes.or_else(|problem| if is_alone { Ok(Vec::new()) } else { Err(vec![problem]) })?;
                config.with_changes(&changes).map_err(|errors| sentences(&errors))
            });
            Ok::<_, CallError>(match config {
                Ok(config) => (compare(&running, &started, &config, Some(&pipeline.policy)), Some(config)),
                Err(problems) => (ConfigurationCheck { problems, ..ConfigurationCheck::default() }, None),
            })
        });
        let (mut check, config) = checked.await.map_err(CallError::internal)??;
        if let Some(config) = config {
            check.add_names(&config, self.unknown_names(&config));
        }
        Ok(check)
    }
}

impl ConfigurationCheck {
    /// Adds the names of the configuration that match nothing.
    pub(super) fn add_names(&mut self, config: &Config, unknown: Vec<UnknownName>) {
        self.problems.extend(config.name_errors(&unknown).iter().map(ToString::to_string));
        let notes = unknown.into_iter().filter(|unknown| !unknown.is_error);
        self.notes.extend(notes.map(|unknown| (unknown.setting.clone(), unknown.sentence())));
    }
}

type Problems = Vec<String>;

/// `mcp_files`: the files of the configuration in force, which a text may name too.
fn read(
    file: Option<&Path>,
    text: Option<String>,
    mcp_files: &[PathBuf],
) -> Result<Result<Config, Problems>, CallError> {
    let environment = match Environment::of_process(file) {
        Ok(environment) => environment,
        Err(error) => return Ok(Err(vec![error.to_string()])),
    };
    let name = file.unwrap_or(Path::new("sekisho.yaml"));
    let read = match (text, file) {
        (Some(text), _) => Config::load_text(name, text, &environment, mcp_files),
        (None, Some(file)) => Config::load(Some(file), &environment),
        (None, None) => {
            let message = "this gateway has no configuration file; send a text";
            return Err(CallError::new(ErrorCode::NotFound, message));
        }
    };
    Ok(read.and_then(Config::refuse_empty_file).map_err(|errors| sentences(&errors)))
}

fn sentences(errors: &[ConfigError]) -> Problems {
    errors.iter().map(ToString::to_string).collect()
}

/// `policy`: the active set.
pub(super) fn compare(
    running: &Config,
    started: &Config,
    next: &Config,
    policy: Option<&Policy>,
) -> ConfigurationCheck {
    let by_key = |config: &Config| -> BTreeMap<String, Setting> {
        config.set.with_defaults().into_iter().map(|setting| (setting.key.clone(), setting)).collect()
    };
    let (before, after) = (by_key(running), by_key(next));
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    // For a secret it shows only whether it is set.
    let says = |setting: Option<&Setting>| {
        let set = |setting: &Setting| setting.is_secret && setting.source != SettingSource::Default;
        setting.map(|setting| (setting.value.clone(), setting.is_secret, set(setting)))
    };
    let changed = keys.into_iter().filter(|key| says(before.get(*key)) != says(after.get(*key)));
    let changes = changed.map(|key| (before.get(key).cloned(), after.get(key).cloned())).collect();
    let policies = (!next.set.has_unread("policy")).then(|| Policy::read(&next.policy));
    let mut opens = match (policy, &policies) {
        (Some(policy), Some(policies)) => openings(running, next, policy, policies),
        _ => next.opens(running),
    };
    // A value that is not read counts as the one in force.
    opens.retain(|opening| !next.set.has_unread(&opening.setting));
    let policies = policies.and_then(Result::err);
    // For a topic with a value that is not read, only the settings that are shown can be compared.
    let shown = by_key(started);
    let is_changed = |topic: &str| {
        let is_in = |key: &str| key.strip_prefix(topic).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let mut keys = shown.keys().chain(after.keys()).filter(|key| is_in(key));
        keys.any(|key| says(shown.get(key)) != says(after.get(key)))
    };
    let mut restart_required = restart_required(started, next);
    restart_required.retain(|topic| !next.set.has_unread(topic) || is_changed(topic));
    ConfigurationCheck {
        problems: policies.map(|errors| lines(&errors).lines().map(str::to_owned).collect()).unwrap_or_default(),
        changes,
        opens,
        restart_required,
        notes: next.notes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the gateway has read it from its file.
    fn running(text: &str, environment: &Environment) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sekisho.yaml");
        std::fs::write(&file, text).unwrap();
        Config::load(Some(&file), environment).unwrap()
    }

    #[test]
    fn a_text_with_the_variables_of_the_running_configuration_changes_only_what_it_changes() {
        let environment = Environment::from_iter([("SECRETS_KEY", "1f".repeat(32)), ("QUEUED", "70".to_owned())]);
        let secrets = "secrets: {key: '${SECRETS_KEY}'}\n";
        let before = running(&format!("{secrets}limits: {{max_queued: '${{QUEUED}}'}}\n"), &environment);
        let check = |text: &str| {
            let name = Path::new("sekisho.yaml");
            compare(&before, &before, &Config::load_text(name, text.to_owned(), &environment, &[]).unwrap(), None)
        };
        let same = check(&format!("{secrets}limits: {{max_queued: '${{QUEUED}}'}}\n"));
        assert_eq!((same.problems.len(), same.changes.len(), same.restart_required.len()), (0, 0, 0), "{same:?}");
        let other = check(&format!("{secrets}limits: {{max_queued: 71}}\nstore: {{url: '${{SECRETS_KEY}}'}}\n"));
        let keys: Vec<_> = other.changes.iter().filter_map(|(_, after)| Some(after.as_ref()?.key.as_str())).collect();
        assert_eq!((keys, other.restart_required), (vec!["limits.max_queued", "store.url"], vec!["store"]));
        assert!(same.opens.is_empty(), "{same:?}");
        assert_eq!(other.opens, [Opening::new("limits.max_queued", "***", 71)], "a variable's value may be a secret");
    }
}
