//! The state of a circuit breaker, as metrics and receipts report it.

/// Which calls a circuit breaker passes. The numbers are the values of the metric (E83).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "kebab-case")]
pub enum BreakerState {
    /// Every call.
    Closed,
    /// One call at a time, which probes whether the upstream works again.
    HalfOpen,
    /// None.
    Open,
}

crate::as_str!(BreakerState);
