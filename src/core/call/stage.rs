//! The stages of a call.

use std::time::Duration;

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The pipeline's stages in order. The names appear in receipts, errors and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Find,
    Limits,
    Validate,
    Policy,
    Budget,
    Breaker,
    Execute,
    Accept,
}

impl Stage {
    pub const ALL: [Self; 8] = [
        Self::Find,
        Self::Limits,
        Self::Validate,
        Self::Policy,
        Self::Budget,
        Self::Breaker,
        Self::Execute,
        Self::Accept,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Find => "find",
            Self::Limits => "limits",
            Self::Validate => "validate",
            Self::Policy => "policy",
            Self::Budget => "budget",
            Self::Breaker => "breaker",
            Self::Execute => "execute",
            Self::Accept => "accept",
        }
    }
}

/// The stages that a call passed, and how long each took.
pub type StageTimes = ArrayVec<(Stage, Duration), { Stage::ALL.len() }>;
