//! The built-in tools: one file a tool, one line in the list.

mod web_fetch;
mod web_search;
