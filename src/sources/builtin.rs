//! The built-in tools: one file a tool, one line in the list.
