//! Where tools come from. Each source implements [`Source`](sekisho_calls::tool::Source).

pub mod builtin;
pub mod components;
mod credentials;
pub mod mcp;
pub mod openapi;
pub mod python_tools;
pub mod user_tokens;
