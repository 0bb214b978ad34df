//! Changes of servers, of which clients may be notified.

use super::server::session_owner::OwnerKey;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The list of tools, or their descriptions.
    Tools,
    /// The list of resources of the server with this name; `None`: of any.
    Resources(Option<String>),
    /// The list of prompts of the server with this name; `None`: of any.
    Prompts(Option<String>),
    /// The content of a resource, by its URI in this gateway.
    Resource {
        uri: String,
        /// The owner of the session that received the change; clients that subscribed over it are notified.
        owner: ResourceOwner,
    },
}

/// The owner of the session with a server that receives changes of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceOwner(pub(super) Option<OwnerKey>);
