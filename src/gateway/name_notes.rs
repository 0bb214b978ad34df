//! Names in the configuration that match nothing: they are looked for when tools or settings have changed, and each minute, since
//! keys, tenants and models of the store change too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::Notify;

use super::background::HOUSEKEEPING;
use super::existing_names::{NameSources, RegisteredNames, existing_names};
use super::parts::{component_error, lines};
use super::{Gateway, OwnTools, StartError};
use sekisho_calls::registry::Snapshot;
use sekisho_config::{Config, ExistingNames, UnknownName};
use sekisho_openapi::Collections;

/// The names of the running configuration that match nothing, and what they are compared with beside the tools.
#[derive(Debug, Default)]
pub(super) struct NameNotes {
    registered: ArcSwap<RegisteredNames>,
    /// Of `agent.skills_directory`; `None` while it is not read.
    skills: ArcSwapOption<BTreeSet<String>>,
    /// Setting → what is wrong with its name; `None` before the names were looked at.
    notes: ArcSwapOption<BTreeMap<String, String>>,
    /// Notified when names of tools have changed.
    changed: Notify,
}

impl NameNotes {
    pub(super) fn of(registered: RegisteredNames) -> Self {
        Self { registered: ArcSwap::from_pointee(registered), ..Self::default() }
    }

    /// Setting → what is wrong with its name.
    pub(super) fn current(&self) -> BTreeMap<String, String> {
        self.notes.load().as_deref().cloned().unwrap_or_default()
    }

    /// The names of tools have changed.
    pub(super) fn tools_changed(&self) {
        self.changed.notify_one();
    }

    /// Logs those that were not there before; the first ones are logged with the other notes of the start.
    fn replace(&self, notes: BTreeMap<String, String>) {
        let before = self.notes.load();
        if let Some(before) = before.as_deref() {
            for (setting, note) in notes.iter().filter(|(setting, note)| before.get(*setting) != Some(note)) {
                tracing::warn!(setting, "{note}");
            }
        }
        self.notes.store(Some(Arc::new(notes)));
    }
}

/// Refuses a configuration with a guard whose name misspells that of a tool.
///
/// # Errors
/// The names with their places.
pub(super) fn refuse_misspelled(config: &Config, existing: &ExistingNames) -> Result<(), StartError> {
    let errors = config.name_errors(&config.unknown_names(existing));
    if errors.is_empty() { Ok(()) } else { Err(component_error("names")(lines(&errors))) }
}

impl Gateway {
    /// The names that a configuration has and that do not exist now.
    pub(super) fn unknown_names(&self, config: &Config) -> Vec<UnknownName> {
        let (python, components) = (self.python_tools.load(), self.components.load());
        let own = OwnTools { python: &python, components: &components };
        config.unknown_names(&self.existing_names(
            config,
            &self.pipeline.registry.snapshot(),
            &self.collections.load(),
            own,
        ))
    }

    /// As [`refuse_misspelled`], for a configuration that is to be applied with these tools.
    pub(super) fn refuse_misspelled(
        &self,
        config: &Config,
        snapshot: &Snapshot,
        collections: &Collections,
        own: OwnTools<'_>,
    ) -> Result<(), StartError> {
        refuse_misspelled(config, &self.existing_names(config, snapshot, collections, own))
    }

    fn existing_names(
        &self,
        config: &Config,
        snapshot: &Snapshot,
        collections: &Collections,
        own: OwnTools<'_>,
    ) -> ExistingNames {
        let servers = self.mcp_servers.listed_names();
        let (registered, skills) = (self.names.registered.load(), self.names.skills.load());
        let (registered, skills) = (&**registered, skills.as_deref());
        existing_names(config, NameSources { snapshot, collections, own, servers: &servers, registered, skills })
    }

    /// The names of the skills in `agent.skills_directory`.
    pub fn know_skills(&self, skills: BTreeSet<String>) {
        self.names.skills.store(Some(Arc::new(skills)));
        self.look_for_unknown_names();
    }

    /// Compares the names of the running configuration with those that exist.
    pub(super) fn look_for_unknown_names(&self) {
        let config = self.config.load_full();
        let unknown = self.unknown_names(&config).into_iter();
        self.names.replace(unknown.map(|unknown| (unknown.setting.clone(), unknown.sentence())).collect());
    }

    /// Looks for them whenever tools have changed, and each minute, until the gateway closes.
    pub(super) async fn follow_names(&self) {
        let mut tick = tokio::time::interval(HOUSEKEEPING);
        loop {
            tokio::select! {
                () = self.closing.cancelled() => return,
                _ = tick.tick() => {}
                () = self.names.changed.notified() => {}
            }
            match RegisteredNames::read(&self.store).await {
                Ok(registered) => self.names.registered.store(Arc::new(registered)),
                // Those read before count on; the store reports itself.
                Err(problem) => tracing::debug!(%problem, "the names in the store cannot be read"),
            }
            // Not between the tools and the settings of a reload.
            let _changing = self.changing.lock().await;
            self.look_for_unknown_names();
        }
    }
}
