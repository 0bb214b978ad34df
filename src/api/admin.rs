//! Routes that change the gateway's tools; they need the role `admin`.

pub(super) mod mcp;
pub(super) mod openapi;
pub(super) mod sign_in;
