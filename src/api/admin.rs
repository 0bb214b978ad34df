//! Routes that change what the gateway offers; they need the role `admin`.

pub(super) mod mcp;
pub(super) mod openapi;
pub(super) mod sign_in;
