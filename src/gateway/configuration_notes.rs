//! Notes about the configuration. The search for names in it that match nothing runs when tools or settings have
//! changed, and each minute, since keys, tenants and models of the store change too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio_util::sync::CancellationToken;

use super::existing_names::{NameSources, RegisteredNames, existing_names};
use super::housekeeping::HOUSEKEEPING;
use super::parts::{component_error, lines};
use super::{Configuration, OwnTools, StartError, ToolOffer, known_names};
use sekisho_calls::pipeline::Pipeline;
use sekisho_calls::policy::unknown_names;
use sekisho_calls::registry::Snapshot;
use sekisho_config::{Config, ExistingNames, UnknownName};
use sekisho_observe::descriptors;
use sekisho_openapi::Collections;
use sekisho_store::Store;

/// Warnings about the configuration: names that match nothing, settings that count later, and the effects of a changed
/// one.
#[derive(Debug)]
pub struct ConfigurationNotes {
    pub(super) configuration: Arc<Configuration>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) store: Store,
    tool_offer: Arc<ToolOffer>,
    /// The names in the store.
    registered: ArcSwap<RegisteredNames>,
    /// The names in `agent.skills_directory`; `None` while it is not read.
    skills: ArcSwapOption<BTreeSet<String>>,
    /// Setting → problem of its name; `None` before the names were looked at.
    names: ArcSwapOption<BTreeMap<String, String>>,
}

/// Refuses a configuration with a guard whose name misspells the name of a tool.
/// Errors: the names with their places.
pub(super) fn refuse_misspelled(config: &Config, existing: &ExistingNames) -> Result<(), StartError> {
    let errors = config.name_errors(&config.unknown_names(existing));
    if errors.is_empty() { Ok(()) } else { Err(component_error("names")(lines(&errors))) }
}

impl ConfigurationNotes {
    pub(super) fn new(tool_offer: &Arc<ToolOffer>, store: &Store, registered: RegisteredNames) -> Self {
        Self {
            configuration: Arc::clone(&tool_offer.configuration),
            pipeline: Arc::clone(&tool_offer.pipeline),
            store: store.clone(),
            tool_offer: Arc::clone(tool_offer),
            registered: ArcSwap::from_pointee(registered),
            skills: ArcSwapOption::default(),
            names: ArcSwapOption::default(),
        }
    }

    /// Warnings about settings, by path.
    pub fn of_settings(&self) -> BTreeMap<String, String> {
        let config = self.configuration.current();
        let mut notes = config.notes();
        notes.extend(self.names.load().as_deref().cloned().unwrap_or_default());
        notes.extend(self.without_lock(&config).map(|note| ("tools.lock".to_owned(), note)));
        notes.extend(descriptors::shortage(&config).map(|note| ("server.max_connections".to_owned(), note)));
        notes.extend(self.tool_offer.mcp_servers.sandbox_notes());
        let pending = self.configuration.restart_required();
        let note = "it was changed; the change takes effect at the next start";
        notes.extend(pending.iter().map(|topic| ((*topic).to_owned(), note.to_owned())));
        notes
    }

    /// Says that tools from outside are taken as they are, where there are such sources.
    fn without_lock(&self, config: &Config) -> Option<String> {
        let has_sources = !config.mcp.servers.is_empty() || !config.openapi.collections.is_empty();
        let is_outside = has_sources || self.pipeline.registry.snapshot().has_tools_from_outside();
        (is_outside && self.tool_offer.lock.load().is_none()).then(|| config.unpinned())
    }

    /// Warnings about the configuration, by path. None of them stops the service.
    pub async fn all(&self) -> BTreeMap<String, String> {
        let config = self.configuration.current_arc();
        let mut notes = self.of_settings();
        let registered = RegisteredNames::read(&self.store).await.unwrap_or_default();
        let own =
            OwnTools { python: &self.tool_offer.python_tools.load(), components: &self.tool_offer.components.load() };
        let collections = self.tool_offer.collections.load();
        let known = known_names(&config, &self.pipeline.registry.snapshot(), &collections, own, registered.servers());
        // Files that cannot be read were reported when the policies were loaded.
        let unknown = unknown_names(&config.policy, &known).unwrap_or_default();
        if !unknown.is_empty() {
            notes.insert("policy".to_owned(), lines(&unknown));
        }
        notes
    }

    /// The names that a configuration has and that do not exist now.
    pub(super) fn unknown_names(&self, config: &Config) -> Vec<UnknownName> {
        let (python, components) = (self.tool_offer.python_tools.load(), self.tool_offer.components.load());
        let own = OwnTools { python: &python, components: &components };
        config.unknown_names(&self.existing_names(
            config,
            &self.pipeline.registry.snapshot(),
            &self.tool_offer.collections.load(),
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
        let servers = self.tool_offer.mcp_servers.listed_names();
        let (registered, skills) = (self.registered.load(), self.skills.load());
        let (registered, skills) = (&**registered, skills.as_deref());
        existing_names(config, NameSources { snapshot, collections, own, servers: &servers, registered, skills })
    }

    /// The names of the skills in `agent.skills_directory`.
    pub fn know_skills(&self, skills: BTreeSet<String>) {
        self.skills.store(Some(Arc::new(skills)));
        self.look_for_unknown_names();
    }

    /// Compares the names of the running configuration with the existing names.
    pub(super) fn look_for_unknown_names(&self) {
        let config = self.configuration.current_arc();
        let unknown = self.unknown_names(&config).into_iter();
        self.replace_names(unknown.map(|unknown| (unknown.setting.clone(), unknown.sentence())).collect());
    }

    /// Logs the new notes; the first ones are logged with the other notes of the start.
    fn replace_names(&self, notes: BTreeMap<String, String>) {
        let before = self.names.load();
        if let Some(before) = before.as_deref() {
            for (setting, note) in notes.iter().filter(|(setting, note)| before.get(*setting) != Some(note)) {
                tracing::warn!(setting, "{note}");
            }
        }
        self.names.store(Some(Arc::new(notes)));
    }

    /// Looks for them whenever tools have changed, and each minute, until the gateway closes.
    pub(super) async fn follow_names(self: Arc<Self>, closing: CancellationToken) {
        let mut tick = tokio::time::interval(HOUSEKEEPING);
        loop {
            tokio::select! {
                () = closing.cancelled() => return,
                _ = tick.tick() => {}
                () = self.tool_offer.names_changed.notified() => {}
            }
            match RegisteredNames::read(&self.store).await {
                Ok(registered) => self.registered.store(Arc::new(registered)),
                // The names read before count on; the store reports itself.
                Err(problem) => tracing::debug!(%problem, "the names in the store cannot be read"),
            }
            // Not between the tools and the settings of a reload.
            let _changing = self.tool_offer.changing.lock().await;
            self.look_for_unknown_names();
        }
    }
}
