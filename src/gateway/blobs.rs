//! The object storage of the replicas: its health, the copies to it, and the removals from it. And the storage of
//! sessions of interpreters, there or in the state directory.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::parts::component_error;
use super::{BackgroundWork, Cluster, StartError};
use sekisho_audit::{SegmentUploads, StoredTrail};
use sekisho_config::Config;
use sekisho_core::owner_only_files::make_folder;
use sekisho_outbound::Outbound;
use sekisho_outbound::blobs::Blobs;
use sekisho_sandbox::{Sandbox, SessionImages};
use sekisho_store::Store;
use sekisho_store::replica::Replica;

/// How often it is looked whether the storage works: an object is written, read and removed.
const PROBE: Duration = Duration::from_secs(30);

/// How often it is looked whether a segment of the audit trail was closed, and whether it can be copied again.
const COPY: Duration = Duration::from_secs(10);

/// How often objects are looked for that nothing names.
const SWEEP: Duration = Duration::from_secs(3_600);

/// The folder of stored sessions in the state directory.
const SESSION_IMAGES: &str = "session-images";

/// The names in readiness: of the storage, and of the segments that wait for it.
const COMPONENT: &str = "object_storage";
const SEGMENTS: &str = "audit_segments";

impl Cluster {
    /// Uses the storage, and looks after it in the background.
    pub(super) fn start_blobs(self: &Arc<Self>, background: &BackgroundWork) {
        let (Some(blobs), Some(replica)) = (&self.blobs, &self.replica) else { return };
        self.pipeline.replies.set_blobs(blobs);
        self.pipeline.results.set_blobs(blobs);
        self.workspaces.share(replica.id(), &self.store, blobs);
        let (cluster, watched) = (Arc::clone(self), blobs.clone());
        background.spawn_until_closing(async move { cluster.watch_blobs(&watched).await });
        let cluster = Arc::clone(self);
        background.spawn_until_closing(async move { cluster.sweep_blobs().await });
        let (cluster, blobs, replica) = (Arc::clone(self), blobs.clone(), Arc::clone(replica));
        background.spawn_until_closing(async move { cluster.copy_segments(blobs, &replica).await });
    }

    async fn watch_blobs(&self, blobs: &Blobs) {
        let mut ticks = tokio::time::interval(PROBE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match blobs.probe().await {
                Ok(()) => self.readiness.restore(COMPONENT),
                Err(error) => self.readiness.degrade(COMPONENT, error.to_string()),
            }
        }
    }

    /// Copies closed segments of the audit trail. While that fails the segments stay, also beyond
    /// `audit.retention_days`.
    async fn copy_segments(&self, blobs: Blobs, replica: &Replica) {
        let audit = &self.pipeline.settlement.audit;
        let uploads =
            SegmentUploads::new(self.configuration.started_with().audit_file(), blobs, replica.id(), replica.host());
        let mut uploads = match uploads {
            Ok(uploads) => uploads,
            Err(error) => return self.readiness.degrade(SEGMENTS, format!("no segment is copied: {error}")),
        };
        let mut ticks = tokio::time::interval(COPY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let waiting = match uploads.copy_closed(audit).await {
                Ok(()) => {
                    self.readiness.restore(SEGMENTS);
                    0
                }
                Err((error, waiting)) => {
                    let reason = format!("{waiting} closed segments wait to be copied, and are kept: {error}");
                    self.readiness.degrade(SEGMENTS, reason);
                    waiting
                }
            };
            self.pipeline.settlement.metrics.set_segments_waiting(waiting);
        }
    }

    async fn sweep_blobs(&self) {
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.pipeline.replies.remove_orphans().await {
                tracing::warn!(%error, "stored replies that nothing names cannot be removed; tried again in an hour");
            }
            if let Err(error) = self.pipeline.results.remove_orphans().await {
                tracing::warn!(%error, "results that no handle names cannot be removed; tried again in an hour");
            }
            if let Err(error) = self.workspaces.remove_orphans().await {
                tracing::warn!(%error, "files that no workspace has cannot be removed; tried again in an hour");
            }
        }
    }
}

/// Looks after stored sessions of interpreters.
pub(super) async fn sweep_session_images(sandbox: &Sandbox) {
    let Some(images) = sandbox.session_images() else { return };
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = images.remove_orphans().await {
            tracing::warn!(%error, "images that no session has cannot be removed; tried again in an hour");
        }
    }
}

/// The storage of a configuration, if it has one.
/// Errors: it names none that can be used.
pub(super) fn open(config: &Config, outbound: &Outbound) -> Result<Option<Blobs>, StartError> {
    let opened = config.cluster.blobs.as_ref().map(|blobs| Blobs::open(blobs, outbound));
    opened.transpose().map_err(component_error("cluster.blobs"))
}

/// Where sessions of interpreters are stored. `None` when they cannot be sealed, or others could not read them.
/// Errors: the folder in the state directory cannot be used.
pub(super) fn session_images(
    config: &Config,
    store: &Store,
    blobs: Option<&Blobs>,
    replica: Option<&Arc<Replica>>,
) -> Result<Option<SessionImages>, StartError> {
    let blobs = match blobs {
        _ if config.sandbox.sessions.max == 0 || config.sandbox.sessions.max_image_bytes == 0 => return Ok(None),
        Some(blobs) => blobs.clone(),
        None if config.cluster.enabled => return Ok(None),
        None => {
            let folder = config.state_directory().join(SESSION_IMAGES);
            make_folder(&folder).map_err(component_error("state_directory"))?;
            Blobs::open_folder(&folder).map_err(component_error("state_directory"))?
        }
    };
    Ok(SessionImages::new(config, store, &blobs, replica.map(|replica| replica.id())))
}

/// The same without a gateway.
fn open_alone(config: &Config) -> Result<Option<Blobs>, StartError> {
    if config.cluster.blobs.is_none() {
        return Ok(None);
    }
    let outbound = Outbound::new(&config.outbound).map_err(component_error("outbound"))?;
    open(config, &outbound)
}

/// Writes, reads and removes an object in the storage of a configuration; returns the place of the storage. `None`
/// without one.
/// Errors: the first operation that fails.
pub async fn probe_blobs(config: &Config) -> Result<Option<String>, StartError> {
    let Some(blobs) = open_alone(config)? else { return Ok(None) };
    blobs.probe().await.map_err(component_error("cluster.blobs"))?;
    Ok(Some(blobs.to_string()))
}

/// Verifies the audit trails in the storage of a configuration; `None` where it has none.
/// Errors: the storage cannot be listed.
pub async fn verify_stored_trails(config: &Config) -> Result<Option<Vec<StoredTrail>>, StartError> {
    let Some(blobs) = open_alone(config)? else { return Ok(None) };
    sekisho_audit::verify_stored(&blobs).await.map(Some).map_err(component_error("cluster.blobs"))
}
