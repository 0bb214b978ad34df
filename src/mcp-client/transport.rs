//! How messages reach a server. A [`connection`](connection::Connection) is the same for all transports: standard input
//! and output of a program, streamable HTTP, and HTTP with SSE.

pub(crate) mod authorized_http;
pub(crate) mod child_process;
pub(crate) mod connection;
mod ending;
pub(crate) mod event_source;
pub(crate) mod event_stream;
pub(crate) mod handshake;
pub(crate) mod http;
mod http_requests;
mod http_sse;
pub(crate) mod in_flight;
pub(crate) mod inbound;
pub(crate) mod large_numbers;
pub(crate) mod lines;
pub(crate) mod message;
pub(crate) mod message_id;
mod observation;
pub(crate) mod program_sandbox;
pub(crate) mod request;
pub(crate) mod request_headers;
mod stdio;
