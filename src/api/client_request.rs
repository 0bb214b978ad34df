//! The id and the address of a client's request, for the log, the audit trail and the reply.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use sekisho_core::client_request::ClientRequest;
use sekisho_core::headers::single;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum bytes of an id in a header.
pub(super) const MAX_ID_BYTES: usize = 256;

/// The request, and its id for the reply. `address`: the client's, `None` if it did not come over a network. Without an
/// id of its own, or with one that cannot be used, it gets a new one.
pub(super) fn read(address: Option<IpAddr>, headers: &HeaderMap) -> (Arc<ClientRequest>, HeaderValue) {
    let address = address.map(|address| address.to_canonical());
    if let Ok(Some(id)) = single(headers, &REQUEST_ID)
        && (1..=MAX_ID_BYTES).contains(&id.len())
        && let Some(value) = headers.get(&REQUEST_ID)
    {
        return (Arc::new(ClientRequest { address, id: id.into() }), value.clone());
    }
    let mut buffer = Uuid::encode_buffer();
    let id: &str = Uuid::now_v7().as_hyphenated().encode_lower(&mut buffer);
    // Cannot fail: hex digits and hyphens.
    let value = HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static(""));
    (Arc::new(ClientRequest { address, id: id.into() }), value)
}
