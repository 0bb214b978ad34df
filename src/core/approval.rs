//! The states of an approval, and the calls that one may cover.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody has decided yet, or one of two persons has approved.
    Pending,
    /// The call may be made.
    Approved,
    /// The call is about to be sent, or was sent and has no answer yet.
    Executing,
    /// The call has ended.
    Done,
    /// Whoever ran the call stopped before its answer: it is not run again.
    Unknown,
    Denied,
    /// Nobody decided in time, or the call was not made in time.
    Expired,
}

/// Which calls an approval covers.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    ToSchema,
    strum::IntoStaticStr,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ApprovalScope {
    /// This call, once.
    #[default]
    Once,
    /// Each call that is exactly like this one, for some minutes.
    Minutes,
    /// Each call of this tool by this caller in this session.
    Session,
}

crate::as_str!(ApprovalState);

impl ApprovalState {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

crate::as_str!(ApprovalScope);

impl ApprovalScope {
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}
