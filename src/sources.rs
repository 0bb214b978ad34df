//! Where tools come from. Each source implements [`Source`](crate::tool::Source).

pub mod builtin;
mod credentials;
pub mod mcp;
pub mod openapi;
pub mod user_tokens;
