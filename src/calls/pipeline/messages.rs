//! The messages of a running call to its client.

use std::sync::Arc;

use super::Pipeline;
use crate::transform::TransformedPeer;
use sekisho_core::call::CallContext;
use sekisho_core::peer::ClientPeer;

impl Pipeline {
    /// Lets the rules for results apply to progress, log messages and questions of the call, too.
    pub(super) fn transform_messages(&self, call: &mut CallContext) {
        if call.client.peer.is_none() || !self.registry.changes_results() {
            return;
        }
        let rules = self.registry.find_for(call).ok().and_then(|tool| tool.transforms.clone());
        if let Some(rules) = rules.filter(|rules| rules.has_results()) {
            let transformed = |peer| Arc::new(TransformedPeer::new(peer, rules)) as Arc<dyn ClientPeer>;
            call.client.peer = call.client.peer.take().map(transformed);
        }
    }
}
