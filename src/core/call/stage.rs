//! The stages of a call.

use std::time::Duration;

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The pipeline's stages in order. The names appear in receipts, errors and metrics.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, strum::IntoStaticStr, strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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

crate::as_str!(Stage);

impl Stage {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

/// The stages that a call passed, and how long each took.
pub type StageTimes = ArrayVec<(Stage, Duration), { Stage::ALL.len() }>;
