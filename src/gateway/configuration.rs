//! The configuration that is in force, and what a changed one would do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::parts::{lines, restart_required};
use super::{Gateway, Reach};
use crate::config::{Config, Environment, Setting};
use crate::core::caller::Caller;
use crate::core::error::{CallError, ErrorCode};
use crate::policy::Policy;

/// What a changed configuration would do.
#[derive(Debug, Default)]
pub(crate) struct ConfigurationCheck {
    /// Why it would not be taken over.
    pub problems: Vec<String>,
    /// The settings that would change: before and after.
    pub changes: Vec<(Option<Setting>, Option<Setting>)>,
    /// Topics of which a change takes effect at the next start.
    pub restart_required: Vec<&'static str>,
    /// Setting → advice.
    pub notes: BTreeMap<String, String>,
}

impl Gateway {
    /// Each setting in force, and where it was set.
    ///
    /// # Errors
    /// `denied` to all but administrators of the tenant `default`: it is about all tenants.
    pub(crate) fn settings(&self, caller: &Caller) -> Result<Vec<Setting>, CallError> {
        self.require_all_tenants(caller)?;
        Ok(self.config().set.with_defaults())
    }

    /// The file of the configuration, if there is one.
    pub(crate) fn configuration_file(&self) -> Option<PathBuf> {
        self.started_with.file.clone()
    }

    /// Checks a text as the content of the configuration's file, or without one the file as it is now. Nothing is taken over.
    ///
    /// # Errors
    /// `denied` to all but administrators of the tenant `default`; `not_found` without a text and a file.
    pub(crate) async fn check_configuration(
        &self,
        caller: &Caller,
        text: Option<String>,
    ) -> Result<ConfigurationCheck, CallError> {
        self.require_all_tenants(caller)?;
        let file = self.configuration_file();
        let (running, started) = (self.config.load_full(), self.started_with.clone());
        // Reads files.
        let checked = tokio::task::spawn_blocking(move || {
            let config = read(file.as_deref(), text)?;
            Ok(match config {
                Ok(config) => compare(&running, &started, &config),
                Err(problems) => ConfigurationCheck { problems, ..ConfigurationCheck::default() },
            })
        });
        checked.await.map_err(CallError::internal)?
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

type Problems = Vec<String>;

fn read(file: Option<&Path>, text: Option<String>) -> Result<Result<Config, Problems>, CallError> {
    let environment = match Environment::of_process(file) {
        Ok(environment) => environment,
        Err(error) => return Ok(Err(vec![error.to_string()])),
    };
    let name = file.unwrap_or(Path::new("sekisho.yaml"));
    let read = match (text, file) {
        (Some(text), _) => Config::load_text(name, text, &environment),
        (None, Some(file)) => Config::load(Some(file), &environment),
        (None, None) => {
            let message = "this gateway has no configuration file; send a text";
            return Err(CallError::new(ErrorCode::NotFound, message));
        }
    };
    Ok(read.map_err(|errors| errors.iter().map(ToString::to_string).collect()))
}

fn compare(running: &Config, started: &Config, next: &Config) -> ConfigurationCheck {
    let by_key = |config: &Config| -> BTreeMap<String, Setting> {
        config.set.with_defaults().into_iter().map(|setting| (setting.key.clone(), setting)).collect()
    };
    let (before, after) = (by_key(running), by_key(next));
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let says = |setting: Option<&Setting>| setting.map(|setting| (setting.value.clone(), setting.is_secret));
    let changed = keys.into_iter().filter(|key| says(before.get(*key)) != says(after.get(*key)));
    let changes = changed.map(|key| (before.get(key).cloned(), after.get(key).cloned())).collect();
    let policies = Policy::load(&next.policy).err();
    ConfigurationCheck {
        problems: policies.map(|errors| lines(&errors).lines().map(str::to_owned).collect()).unwrap_or_default(),
        changes,
        restart_required: restart_required(started, next),
        notes: next.notes(),
    }
}
