//! Changes of the configuration that administrators propose, apply and undo while gateways run. The store has them, and they count over
//! the file: at a start, at each reload, and at all replicas.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::change_trial::{ChangeTrial, TRIED_CALLS, try_on};
use super::changes::record_reload;
use super::configuration::compare;
use super::parts::lines;
use super::{ConfigurationCheck, Gateway};
use sekisho_config::{ChangesMode, Config, ConfigError, ConfigPatch, ReloadMode};
use sekisho_core::administration::SharedAdministrator;
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::{
    CallOrder, ChangeState, ConfigurationChangeStore, IndexFilter, IndexedCall, NewChange, Store, StoredChange,
};

/// Maximum changes in force.
const MAX_APPLIED: usize = 100;

/// Longest comment, in bytes.
const MAX_COMMENT_BYTES: usize = 1_000;

/// How often it is looked whether another replica applied or undid a change.
const POLL: Duration = Duration::from_secs(1);

/// The component of readiness.
const COMPONENT: &str = "configuration_changes";

/// The changes of the store.
#[derive(Debug)]
pub(super) struct ConfigurationChanges {
    store: ConfigurationChangeStore,
    /// Held while a configuration is applied.
    pub(super) applying: Mutex<()>,
}

/// A change with its effects now.
#[derive(Debug)]
pub struct ChangePreview {
    pub change: StoredChange,
    /// Of applying it, or of undoing it where it is in force; `None` for one that was undone.
    pub effect: Option<(ConfigurationCheck, ChangeTrial)>,
}

impl ConfigurationChanges {
    pub(super) fn new(store: &Store) -> Self {
        Self { store: store.configuration_changes(), applying: Mutex::default() }
    }

    /// The changes in force, in their order.
    /// Errors: the reason, for an operator.
    pub(super) async fn in_force(&self) -> Result<Vec<ConfigPatch>, String> {
        patches_of(&self.store.applied().await.map_err(|error| error.to_string())?)
    }

    /// The configuration with the changes of the store over its file.
    /// Errors: the reason, for an operator.
    pub(super) async fn over(&self, config: &Config) -> Result<Arc<Config>, String> {
        let patches = match config.config.changes {
            ChangesMode::ReadOnly => Vec::new(),
            ChangesMode::FourEyes | ChangesMode::Single => self.in_force().await?,
        };
        config.with_changes(&patches).map(Arc::new).map_err(|errors| {
            format!(
                "the configuration does not fit the changes that were applied at /admin/changes: {}; correct the file, or leave the \
                 changes out with `config.changes: read_only`",
                lines(&errors)
            )
        })
    }
}

/// The end of the message about a configuration that cannot be applied: with changes over it, its file may have no fault.
pub(super) fn advice_on(config: &Config) -> &'static str {
    match config.changes().as_object() {
        Some(changes) if !changes.is_empty() => {
            "; the changes that were applied at /admin/changes count over the file: correct it, or leave them out with \
             `config.changes: read_only`"
        }
        _ => "",
    }
}

fn patches_of(changes: &[StoredChange]) -> Result<Vec<ConfigPatch>, String> {
    let patch = |change: &StoredChange| {
        let value: Value = serde_json::from_str(&change.patch).map_err(|problem| problem.to_string())?;
        ConfigPatch::new(value).map_err(|problems| problems.join("; "))
    };
    let named = |change: &StoredChange| patch(change).map_err(|problem| format!("change {}: {problem}", change.id));
    changes.iter().map(named).collect()
}

fn invalid(message: impl Into<String>) -> CallError {
    CallError::new(ErrorCode::InvalidRequest, message)
}

/// Whether the caller may be who proposed it.
fn may_be_of(change: &StoredChange, by: &Caller) -> bool {
    let Ok(persons) = serde_json::from_str::<Vec<String>>(&change.persons) else { return true };
    by.persons().any(|person| persons.iter().any(|one| one == person))
}

impl Gateway {
    /// Changes of the configuration, the latest first. `after`: when the last one of the page before was proposed, and its id.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn configuration_changes(
        &self,
        _by: SharedAdministrator,
        after: Option<(jiff::Timestamp, &str)>,
        max: usize,
    ) -> Result<Vec<StoredChange>, CallError> {
        Ok(self.changes.store.list(after, max).await?)
    }

    /// A change, with the effects of applying or undoing it now.
    /// Errors: `not_found`; `invalid_request`: it does not fit the configuration in force; `overloaded` when the store cannot be read.
    pub async fn configuration_change(&self, _by: SharedAdministrator, id: &str) -> Result<ChangePreview, CallError> {
        let change = self.stored_change(id).await?;
        if change.state == ChangeState::Undone {
            return Ok(ChangePreview { change, effect: None });
        }
        let next = self.next_configuration(&change).await?;
        let effect = Some(self.effect(&next).await?);
        Ok(ChangePreview { change, effect })
    }

    /// Proposes a change, and applies nothing.
    /// Errors: `denied` with `config.changes: read_only`; `invalid_request`: it would not be taken over, or changes nothing; `overloaded`
    /// when the store cannot be written.
    pub async fn propose_change(
        &self,
        by: &Caller,
        _proof: SharedAdministrator,
        patch: Value,
        comment: String,
    ) -> Result<ChangePreview, CallError> {
        self.require_changeable()?;
        if comment.len() > MAX_COMMENT_BYTES || comment.contains('\0') {
            let message = format!("`comment` has more than {MAX_COMMENT_BYTES} bytes, or a null character; shorten it");
            return Err(invalid(message));
        }
        let patch = ConfigPatch::new(patch).map_err(|problems| invalid(problems.join("; ")))?;
        let persons: Vec<_> = by.persons().collect();
        let new = NewChange {
            id: Uuid::new_v4().to_string(),
            patch: patch.value().to_string(),
            comment,
            proposed_by: by.id.to_string(),
            persons: serde_json::to_string(&persons).map_err(CallError::internal)?,
        };
        let mut patches = patches_of(&self.changes.store.applied().await?).map_err(invalid)?;
        patches.push(patch);
        let next = self.with_patches(&patches)?;
        if *next == **self.configuration.current() {
            let message =
                "it changes nothing: the values are in force, or the environment of the gateway overrides them";
            return Err(invalid(message));
        }
        let (check, trial) = self.effect(&next).await?;
        refuse_problems(&check)?;
        self.changes.store.propose(&new).await?;
        let change = self.stored_change(&new.id).await?;
        Ok(ChangePreview { change, effect: Some((check, trial)) })
    }

    /// Puts a proposed change in force. `opens`: the settings of which the administrator knows that it opens them.
    /// Errors: `denied` with `config.changes: read_only`, and to who proposed it with `four_eyes`; `not_found`; `invalid_request`: it is
    /// in force, does not fit, or opens further settings; `overloaded` when the store cannot be written.
    pub async fn apply_change(
        &self,
        by: &Caller,
        _proof: SharedAdministrator,
        id: &str,
        opens: &[String],
    ) -> Result<StoredChange, CallError> {
        self.settle_change(by, id, (ChangeState::Proposed, ChangeState::Applied), opens).await
    }

    /// Takes a change out of force; later ones stay.
    /// Errors: as [`apply_change`](Self::apply_change); with `four_eyes` also `denied` where it opens something.
    pub async fn undo_change(
        &self,
        by: &Caller,
        _proof: SharedAdministrator,
        id: &str,
        opens: &[String],
    ) -> Result<StoredChange, CallError> {
        self.settle_change(by, id, (ChangeState::Applied, ChangeState::Undone), opens).await
    }

    /// Whether this configuration, as it was loaded, is in force with the changes over it.
    pub async fn has_in_force(&self, loaded: &Config) -> bool {
        self.changes.over(loaded).await.is_ok_and(|merged| *merged == **self.configuration.current())
    }

    async fn settle_change(
        &self,
        by: &Caller,
        id: &str,
        states: (ChangeState, ChangeState),
        opens: &[String],
    ) -> Result<StoredChange, CallError> {
        let _applying = self.changes.applying.lock().await;
        self.require_changeable()?;
        let change = self.stored_change(id).await?;
        if change.state != states.0 {
            let (state, needed) = (<&str>::from(change.state), <&str>::from(states.0));
            return Err(invalid(format!("the change is {state}, and not {needed}: look at it again")));
        }
        let (running, version) = (self.configuration.current_arc(), self.changes.store.version().await?);
        let next = self.next_configuration(&change).await?;
        let check = self.compare_with(&next).await?;
        refuse_problems(&check)?;
        permit(&running, by, (&change, states.1), &check, opens)?;
        let applied = Box::pin(self.apply(Config::clone(&next))).await;
        let settled = match applied {
            Ok(()) => self.changes.store.settle(id, states, &by.id, version).await.map_err(CallError::from),
            Err(problem) => Err(invalid(problem.to_string())),
        };
        if !matches!(settled, Ok(true)) {
            // A change that failed may have been taken over in part.
            if let Err(problem) = Box::pin(self.apply(Config::clone(&running))).await {
                self.readiness.degrade(COMPONENT, problem.to_string());
            }
            settled?;
            return Err(invalid("another change was applied or undone at the same time: look at it again"));
        }
        self.report_applied();
        self.stored_change(id).await
    }

    fn report_applied(&self) {
        record_reload(&self.pipeline.settlement.audit, None);
        self.pipeline.settlement.metrics.configuration_reloaded(true);
        self.readiness.restore(COMPONENT);
    }

    fn require_changeable(&self) -> Result<(), CallError> {
        match self.configuration.current().config.changes {
            ChangesMode::ReadOnly => {
                let message = "the configuration is its file alone (`config.changes: read_only`): change it there";
                Err(CallError::new(ErrorCode::Denied, message))
            }
            ChangesMode::FourEyes | ChangesMode::Single => Ok(()),
        }
    }

    async fn stored_change(&self, id: &str) -> Result<StoredChange, CallError> {
        let missing = || CallError::new(ErrorCode::NotFound, "there is no such change of the configuration");
        let id = Uuid::try_parse(id).map_err(|_| missing())?;
        self.changes.store.get(&id.to_string()).await?.ok_or_else(missing)
    }

    /// The configuration once a proposed change is applied, or one in force is undone.
    async fn next_configuration(&self, change: &StoredChange) -> Result<Arc<Config>, CallError> {
        let mut applied = self.changes.store.applied().await?;
        match change.state {
            ChangeState::Proposed if applied.len() >= MAX_APPLIED => {
                let message = format!(
                    "{MAX_APPLIED} changes are in force, which is the maximum: write the export into the configuration's file, and undo \
                     them"
                );
                return Err(invalid(message));
            }
            ChangeState::Proposed => applied.push(change.clone()),
            ChangeState::Applied | ChangeState::Undone => applied.retain(|one| one.id != change.id),
        }
        self.with_patches(&patches_of(&applied).map_err(invalid)?)
    }

    fn with_patches(&self, patches: &[ConfigPatch]) -> Result<Arc<Config>, CallError> {
        let merged = self.configuration.current().with_changes(patches);
        let refused =
            |errors: Vec<ConfigError>| invalid(format!("the change would not be taken over: {}", lines(&errors)));
        merged.map(Arc::new).map_err(refused)
    }

    async fn compare_with(&self, next: &Arc<Config>) -> Result<ConfigurationCheck, CallError> {
        let (running, changed) = (self.configuration.current_arc(), Arc::clone(next));
        let started = self.configuration.started_with().clone();
        // Reads files.
        let compared = tokio::task::spawn_blocking(move || compare(&running, &started, &changed, None));
        let mut check = compared.await.map_err(CallError::internal)?;
        check.add_names(next, self.configuration_notes.unknown_names(next));
        Ok(check)
    }

    async fn effect(&self, next: &Arc<Config>) -> Result<(ConfigurationCheck, ChangeTrial), CallError> {
        let calls = self.latest_calls_to_try().await?;
        let trial = try_on(&calls, &self.configuration.current(), next);
        Ok((self.compare_with(next).await?, trial))
    }

    async fn latest_calls_to_try(&self) -> Result<Vec<IndexedCall>, CallError> {
        self.call_index.write().await;
        let mut calls = Vec::new();
        let mut after = None;
        while calls.len() < TRIED_CALLS {
            let (filter, left) = (IndexFilter::default(), TRIED_CALLS - calls.len());
            let found = self.call_index.store.calls(&filter, CallOrder::Time, after.as_ref(), left).await?;
            calls.extend(found.calls);
            let Some(next) = found.next else { break };
            after = Some(next);
        }
        Ok(calls)
    }

    /// Looks every second whether another replica applied or undid a change, and takes it over.
    pub(super) async fn follow_changes(self: Arc<Self>, closing: CancellationToken) {
        let mut ticks = tokio::time::interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known = None;
        while closing.run_until_cancelled(ticks.tick()).await.is_some() {
            // The component `cluster` says when the store cannot be read.
            let Ok(version) = self.changes.store.version().await else { continue };
            if known == Some(version) {
                continue;
            }
            match self.adopt_changes().await {
                Ok(()) => {
                    known = Some(version);
                    self.readiness.restore(COMPONENT);
                }
                Err(problem) => self.readiness.degrade(COMPONENT, problem),
            }
        }
    }

    async fn adopt_changes(&self) -> Result<(), String> {
        let _applying = self.changes.applying.lock().await;
        let running = self.configuration.current_arc();
        let next = self.changes.over(&running).await?;
        if *next == *running {
            return Ok(());
        }
        Box::pin(self.apply(Arc::unwrap_or_clone(next))).await.map_err(|problem| problem.to_string())?;
        self.report_applied();
        Ok(())
    }
}

fn refuse_problems(check: &ConfigurationCheck) -> Result<(), CallError> {
    if check.problems.is_empty() { Ok(()) } else { Err(invalid(check.problems.join("\n"))) }
}

/// Whether this administrator may give a change this state, with what that opens.
fn permit(
    running: &Config,
    by: &Caller,
    (change, to): (&StoredChange, ChangeState),
    check: &ConfigurationCheck,
    opens: &[String],
) -> Result<(), CallError> {
    if running.config.changes == ChangesMode::FourEyes {
        if to == ChangeState::Applied && may_be_of(change, by) {
            let message = "you cannot apply a change that you proposed (`config.changes: four_eyes`): ask another administrator. Keys \
                           that you or the creator of your key created or rotated count as one person with you";
            return Err(CallError::new(ErrorCode::Denied, message));
        }
        if to == ChangeState::Undone && !check.opens.is_empty() {
            let message = "to undo it opens something, which takes two administrators (`config.changes: four_eyes`): propose the \
                           opposite change";
            return Err(CallError::new(ErrorCode::Denied, message));
        }
    }
    let unconfirmed: Vec<_> =
        check.opens.iter().filter(|opening| !opens.contains(&opening.setting)).map(ToString::to_string).collect();
    if running.config.reload == ReloadMode::Guarded && !unconfirmed.is_empty() {
        let message = format!(
            "it opens what the configuration in force keeps closed: {}; name these settings in `opens` to confirm it",
            unconfirmed.join("; ")
        );
        return Err(invalid(message));
    }
    Ok(())
}
