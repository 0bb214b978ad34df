//! The one HTTP client.
#[derive(Debug, Clone)]
pub struct Outbound;
