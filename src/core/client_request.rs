//! The request of a client that a call came with.

use std::net::IpAddr;
use std::sync::Arc;

/// The fields of a request for log and audit trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRequest {
    /// The address of the client; `None` if it did not come over a network.
    pub address: Option<IpAddr>,
    /// `X-Request-Id`: the client's own, or made by the gateway. Visible ASCII characters.
    pub id: Arc<str>,
}
