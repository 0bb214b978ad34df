//! Sandboxes with real programs in them. The helper process is a copy of this program.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;
mod connections;
mod hostile;
mod packages;
mod programs;
