//! The record of an event that is not a call: a sign-in, a registration, an approval, a change of a key, a reload.

use std::time::SystemTime;

/// An event of the audit trail, for the index. Its texts are bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    pub time: SystemTime,
    /// Its kind, such as `key_created`.
    pub event: String,
    /// Whether it was done.
    pub success: bool,
    pub tenant: Option<String>,
    pub caller: Option<String>,
    /// The managed key that the caller sent.
    pub key: Option<String>,
    /// The server, collection or file that it is about.
    pub subject: Option<String>,
    /// The change, or the reason of the refusal.
    pub detail: Option<String>,
    pub client: Option<String>,
    pub request_id: Option<String>,
    /// Equal events that are one entry.
    pub count: u64,
}
