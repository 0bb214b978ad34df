//! Routes for agents and operators: tools, health and metrics.

pub(super) mod files;
pub(super) mod health;
pub(super) mod receipts;
pub(super) mod tools;
pub(super) mod v1;
