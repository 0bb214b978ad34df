//! Sekisho (関所, a checkpoint): a service through which AI agents run tools.
//!
//! Read [`pipeline`] first: the life of a tool call. The modules below stand in layers, the highest first. A module uses
//! only modules that stand after it; `tests/tidy.rs` reads this list and refuses an import that points upwards.

// The command line.
pub mod cli;

// The HTTP server and the MCP server: how calls come in.
pub mod api;

// A client of the gateway: a model in a loop with its tools.
pub mod agent;

// Everything wired together, and reloaded.
pub mod gateway;

// Where tools come from, and the sandbox that runs Python.
pub mod sources;

pub mod sandbox;

// What every call passes: the path, then its stages.
pub mod pipeline;

pub mod limits;

pub mod policy;

pub mod budget;

pub mod breaker;

// Which tools there are, and what a tool is.
pub mod registry;

pub mod tool;

// What all of it stands on.
pub mod infra;

pub mod config;

pub mod core;
