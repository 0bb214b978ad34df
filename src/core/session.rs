//! One session: the state of a caller between calls, owned by tenant and caller.
//!
//! It is in memory. A workspace still outlives a restart: its name derives only from tenant, caller and id, so that the
//! same session finds its files again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use rust_decimal::Decimal;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::caller::Caller;

/// One session of one caller. Holding the `Arc` prevents its eviction.
#[derive(Debug)]
pub struct Session {
    pub id: Arc<str>,
    workspace_name: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    calls: u64,
    cost_usd: Decimal,
    /// Tools that agents may not use here (A53).
    tools_off: BTreeSet<String>,
    last_used: Instant,
}

impl Session {
    pub fn new(caller: &Caller, id: &str) -> Self {
        let state = State { calls: 0, cost_usd: Decimal::ZERO, tools_off: BTreeSet::new(), last_used: Instant::now() };
        Self { id: id.into(), workspace_name: workspace_name(caller, id), state: Mutex::new(state) }
    }

    /// Calls settled in this session.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// The cost of those calls together.
    pub fn cost_usd(&self) -> Decimal {
        self.state.lock().cost_usd
    }

    /// The tools that the session's agents neither see nor call.
    pub fn tools_off(&self) -> BTreeSet<String> {
        self.state.lock().tools_off.clone()
    }

    /// Switches tools on or off; returns all that are off then.
    pub fn switch_tools(&self, tools: &BTreeMap<String, bool>) -> BTreeSet<String> {
        let off = &mut self.state.lock().tools_off;
        for (tool, on) in tools {
            if *on {
                off.remove(tool);
            } else {
                off.insert(tool.clone());
            }
        }
        off.clone()
    }

    /// Counts one ended call. The session is idle from here on.
    pub fn settle(&self, cost_usd: Decimal) {
        let mut state = self.state.lock();
        state.calls = state.calls.saturating_add(1);
        state.cost_usd = state.cost_usd.saturating_add(cost_usd);
        state.last_used = Instant::now();
    }

    /// SHA-256 (hex) over tenant, caller and id: the name of the workspace folder. No text of a caller becomes part
    /// of a path.
    pub fn workspace_name(&self) -> &str {
        &self.workspace_name
    }

    /// Resets its idle time.
    pub fn touch(&self) {
        self.state.lock().last_used = Instant::now();
    }

    /// The time when it was last opened, or a call of it ended.
    pub fn last_used(&self) -> Instant {
        self.state.lock().last_used
    }
}

/// Each part is preceded by its length, so that no two triples have the same bytes.
fn workspace_name(caller: &Caller, id: &str) -> String {
    workspace_of(&caller.key, id)
}

/// The name of the workspace of a session of the caller with that key.
pub fn workspace_of(caller_key: &str, id: &str) -> String {
    let (tenant, identity) = Caller::tenant_and_identity(caller_key);
    let mut hash = Sha256::new();
    for part in [tenant, identity, id] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn caller(tenant: &str, id: &str) -> Caller {
        Caller::new(id, tenant, Vec::new())
    }

    /// Workspaces on disk are found by these names: they must not change for existing ones.
    #[test]
    fn the_workspaces_of_api_keys_keep_their_names_and_differ_from_those_of_tokens() {
        let ann = workspace_name(&caller("acme", "ann"), "s1");
        assert_eq!(ann, "2f0a122c9163f1c5e72909e0c591b0e6616c563b0e8b9d7d657bf7423814d00b");
        let anonymous = workspace_name(&Caller::anonymous(), "s1");
        assert_eq!(anonymous, "02c64c0a2f54b139159bd922cd63edadbe3d9b46e0d89493712e18f113b4f924");
        let token = Caller::of_issuer("https://issuer.example", "ann", "acme", Vec::new());
        assert_ne!(workspace_name(&token, "s1"), ann);
    }

    #[test]
    fn a_workspace_name_stays_the_same_over_restarts() {
        let name = workspace_name(&caller("acme", "ann"), "s");
        assert_eq!(name, "f1455881d51b963f7ef49c23067ccabcf20528ca432e0a4557e535998ad23b94");
    }

    proptest! {
        /// Tenants and ids have no control characters: authentication refuses them.
        #[test]
        fn no_two_owners_share_a_workspace(a in ("[ab#]{0,3}", "[ab#]{0,3}", "[ab\u{1f}]{1,3}"), b in ("[ab#]{0,3}", "[ab#]{0,3}", "[ab\u{1f}]{1,3}")) {
            let name = |(tenant, id, session): &(String, String, String)| workspace_name(&caller(tenant, id), session);
            prop_assert_eq!(a == b, name(&a) == name(&b));
        }
    }
}
