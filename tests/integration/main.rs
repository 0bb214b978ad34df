//! The real service, driven from outside: one binary, one [`app::TestApp`], a file for each thing it must do.

mod app;
mod audit;
mod auth;
mod bad_input;
mod budget;
mod call;
mod cli;
mod files;
mod idempotency;
mod leaks;
mod limits;
mod listing;
mod observability;
mod outside;
mod policy;
mod reload;
mod upstream;
