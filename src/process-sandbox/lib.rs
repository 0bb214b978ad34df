//! Runs a program of somebody else, such as an MCP server, with files, processes and a network of its own.

pub mod network;
mod profile;

pub use profile::{Folder, Limits, Network, Profile};
