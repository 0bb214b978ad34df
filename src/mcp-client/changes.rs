//! Changes of servers, of which clients may be notified.

use super::server::session_owner::OwnerKey;
use sekisho_core::administration::Ownership;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The list of tools, or their descriptions.
    Tools,
    /// The list of resources, of servers with this owner.
    Resources(Ownership),
    /// The list of prompts, of servers with this owner.
    Prompts(Ownership),
    /// The content of a resource, by its URI in this gateway.
    Resource {
        uri: String,
        /// The owner of the session that received the change; clients that subscribed over it are notified.
        owner: ResourceOwner,
    },
}

impl Change {
    /// Whether it may concern callers of this tenant.
    pub fn is_visible_to(&self, tenant: &str) -> bool {
        match self {
            Self::Resources(owner) | Self::Prompts(owner) => owner.is_visible_to(tenant),
            // Lists of tools are compared for each caller, and a resource has its subscribers.
            Self::Tools | Self::Resource { .. } => true,
        }
    }
}

/// The owner of the session with a server that receives changes of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceOwner(pub(super) Option<OwnerKey>);
