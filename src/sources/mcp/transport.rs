//! How messages reach a server: standard input and output of a program, streamable HTTP, and HTTP with SSE.

pub(crate) mod authorized_http;
pub(crate) mod call_stream;
pub(crate) mod child_process;
pub(crate) mod discover_probe;
pub(crate) mod event_bound;
pub(crate) mod fast_path;
pub(crate) mod http;
pub(crate) mod http_sse;
pub(crate) mod stdio;
