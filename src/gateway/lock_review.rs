//! The differences from `tools.lock`, and their approval while the gateway runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use utoipa::ToSchema;

use super::changes::record_lock;
use super::parts::component_error;
use super::{StartError, ToolOffer};
use sekisho_calls::registry::Snapshot;
use sekisho_calls::registry::lock::{Change as Edited, Difference, Lock, Pin, differences, pins};
use sekisho_calls::tool::Source;
use sekisho_core::administration::SharedAdministrator;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_mcp_client::Change;

/// The differences from the lock.
#[derive(Debug)]
pub struct LockReview {
    pub differences: Vec<Difference>,
    /// By the names of the differences: the pin that is approved with each.
    pub pins: BTreeMap<String, Pin>,
    /// Sources that are not compared, with the reason.
    pub out_of_reach: BTreeMap<String, String>,
}

/// The approval of one difference, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ApprovalBody)]
pub struct Approval {
    pub tool: String,
    /// The `hash` of the difference, so that what is approved is what was seen; empty for a tool that was removed.
    pub hash: String,
}

impl LockReview {
    /// The hash that the approval of a difference names.
    pub fn hash_of(&self, difference: &Difference) -> &str {
        self.pins.get(&difference.tool).map(Pin::hash).unwrap_or_default()
    }
}

impl ToolOffer {
    /// The differences from the lock; `None` without a lock.
    /// Errors: the tools cannot be read.
    pub async fn review_lock(self: &Arc<Self>) -> Result<Option<LockReview>, CallError> {
        let Some(lock) = self.lock.load_full() else { return Ok(None) };
        let offer = Arc::clone(self);
        // Compiling the schemas of thousands of tools takes long, so it must not block a thread that serves calls.
        let pins = tokio::task::spawn_blocking(move || offer.present_pins()).await;
        let mut pins = pins.map_err(CallError::internal)?.map_err(CallError::internal)?;
        let out_of_reach = self.sources_out_of_reach();
        let differences = differences(&lock, &pins, |source| out_of_reach.contains_key(source));
        pins.retain(|name, _| differences.iter().any(|difference| difference.tool == *name));
        Ok(Some(LockReview { differences, pins, out_of_reach }))
    }

    /// Approves differences as they were seen, writes the lock, and applies it.
    /// Errors: `not_found` without a lock, `invalid_request` for a difference that has changed since it was seen;
    /// internal: the file cannot be written. Nothing is approved then.
    pub async fn approve(self: &Arc<Self>, _by: SharedAdministrator, approvals: &[Approval]) -> Result<(), CallError> {
        let _changing = self.changing.lock().await;
        let review = self.review_lock().await?;
        let (Some(review), Some(before)) = (review, self.lock.load_full()) else {
            let message = "no `tools.lock` applies; create one with `sekisho lock`";
            return Err(CallError::new(ErrorCode::NotFound, message));
        };
        let mut lock = Lock::clone(&before);
        for approval in approvals {
            let seen = |difference: &&Difference| {
                difference.tool == approval.tool && review.hash_of(difference) == approval.hash
            };
            let difference = review.differences.iter().find(seen).ok_or_else(|| {
                let message = format!("{} has changed since it was seen; look at it again", approval.tool);
                CallError::new(ErrorCode::InvalidRequest, message)
            })?;
            if let Edited::Renamed { from } = &difference.change {
                lock.approve(from, None);
            }
            lock.approve(&difference.tool, review.pins.get(&difference.tool).cloned());
        }
        self.apply_lock(before, lock).await
    }

    async fn apply_lock(self: &Arc<Self>, before: Arc<Lock>, lock: Lock) -> Result<(), CallError> {
        let (lock_file, lock) = (self.configuration.current().lock_file(), Arc::new(lock));
        let (offer, written, file) = (Arc::clone(self), Arc::clone(&lock), lock_file.clone());
        let snapshot = tokio::task::spawn_blocking(move || {
            let (config, collections) = (offer.configuration.current(), offer.collections.load());
            let known = offer.pipeline.registry.snapshot();
            let snapshot = offer.tool_set(Some(Arc::clone(&written))).rebuild(&config, &collections, &known)?;
            written.write(&file).map_err(component_error("tools.lock"))?;
            Ok::<_, StartError>(snapshot)
        });
        let snapshot = snapshot.await.map_err(CallError::internal)?.map_err(CallError::internal)?;
        record_lock(&self.pipeline.settlement.audit, &lock_file, Some(&before), Some(&lock));
        self.lock.store(Some(lock));
        self.mcp_servers.announce(Change::Prompts(None));
        self.replace(snapshot);
        self.mcp_servers.announce(Change::Tools);
        Ok(())
    }

    /// The pins of all tools as they are now, and of the texts of MCP servers.
    fn present_pins(&self) -> Result<BTreeMap<String, Pin>, StartError> {
        let (config, collections) = (self.configuration.current(), self.collections.load());
        let fixed = self.tool_set(None).fixed(&config, &collections).tools;
        let outside = self.mcp_servers.tools().tools.into_iter().chain(self.components.load().tools().tools);
        let outside = outside.chain(collections.tools_of_tenants().tools);
        let definitions: Vec<_> = fixed.into_iter().chain(outside).collect();
        let snapshot = self.tool_set(None).rebuild(&config, &collections, &Snapshot::default())?;
        let mut pins = pins(&definitions, &config.tools, &snapshot);
        pins.extend(self.mcp_servers.words());
        Ok(pins)
    }

    fn sources_out_of_reach(&self) -> BTreeMap<String, String> {
        let mut out_of_reach = super::inventory::out_of_reach(&self.collections.load(), &self.mcp_servers);
        out_of_reach.extend(self.components.load().problems());
        // Its server does not run, and its tools are not gone.
        let config = self.configuration.current();
        let is_off = |source: &&String| source.starts_with("mcp:") && !self.switched.is_in_use(source);
        let off = config.catalogue.sources.keys().filter(is_off);
        out_of_reach.extend(off.map(|source| (source.clone(), "it is in the catalogue, and nobody has it".to_owned())));
        out_of_reach
    }
}
