//! The real service, driven from outside: one binary, one [`app::TestApp`], a file for each thing it must do.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod agents;
mod app;
mod audit;
mod auth;
mod bad_input;
mod budget;
mod call;
mod chat;
mod cli;
mod connections;
mod datainsight;
mod document_host;
mod documents;
mod files;
mod httpbin;
mod idempotency;
mod interpreters;
mod leaks;
mod limits;
mod listing;
mod observability;
mod openapi;
mod outside;
mod policy;
mod public_documents;
mod readme;
mod registration;
mod reload;
mod round_trip;
mod sandbox;
mod sandbox_worker;
mod select;
mod upstream;
