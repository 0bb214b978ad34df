//! Executes an operation: arguments to a request, the response to an output.

pub(crate) mod adapter;
pub(crate) mod arguments;
pub(crate) mod body;
pub(crate) mod credentials;
pub(crate) mod executor;
pub(crate) mod large_numbers;
pub(crate) mod pagination;
pub(crate) mod parameter_encoding;
pub(crate) mod request;
pub(crate) mod response;
