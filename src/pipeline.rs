//! The life of a tool call.
