//! Starts the background tasks of the gateway.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::blobs::sweep_session_images;
use super::housekeeping::Housekeeping;
use super::{
    CallApprovals, CallIndex, ConfigurationNotes, Gateway, Keys, OpenapiCollections, PythonFunctions, ToolOffer,
};
use sekisho_calls::flow::Flow;
use sekisho_calls::pipeline::{Pipeline, REFUSALS_WINDOW};

impl Gateway {
    pub(super) fn start_background(self: &Arc<Self>) {
        let background = &self.background;
        // Has the gateway, and with it the lock of its state directory, until it is closed.
        background.spawn_of(self, |gateway, closing| async move { gateway.usage.run(closing).await });
        background.spawn_of(&self.call_index, CallIndex::run);
        background.spawn_of(&self.keys, Keys::keep_uses);
        let (outbound, readiness) = (self.outbound.clone(), Arc::clone(&self.readiness));
        background.spawn_of(&self.approvals, |approvals, closing| approvals.send_notices(outbound, readiness, closing));
        self.cluster.start(background);
        if self.cluster.replica().is_some() {
            background.spawn_of(&self.approvals, CallApprovals::follow_decisions);
            background.spawn_of(&self.keys, Keys::follow);
            background.spawn_of(self, Self::follow_changes);
        }
        let sandbox = Arc::clone(&self.sandbox);
        background.spawn_until_closing(async move { sweep_session_images(&sandbox).await });
        background.spawn_of(&self.collections, OpenapiCollections::keep_documents);
        background.spawn_of(&self.python_functions, PythonFunctions::keep);
        background.spawn_of(&self.tool_offer, ToolOffer::keep_components);
        background.spawn_of(&self.configuration_notes, ConfigurationNotes::follow_names);
        background
            .spawn_of(&self.sandbox, |sandbox, closing| async move { sandbox.look_after_sessions(closing).await });
        let offer = Arc::clone(&self.tool_offer);
        background.spawn_until_closing(async move { offer.follow_mcp_servers().await });
        let offer = Arc::clone(&self.tool_offer);
        background.spawn_until_closing(async move { offer.keep_values().await });
        background.spawn_of(&self.pipeline, write_refusals);
        background.spawn_of(&self.pipeline.flow, Flow::keep_history);
        background.spawn_of(&self.housekeeping, Housekeeping::run);
    }
}

async fn write_refusals(pipeline: Arc<Pipeline>, closing: CancellationToken) {
    let mut tick = tokio::time::interval(REFUSALS_WINDOW);
    while closing.run_until_cancelled(tick.tick()).await.is_some() {
        pipeline.settlement.write_refusals();
    }
}
