//! The metrics of results that are too large for a model.

use super::Metrics;

/// What became of a large result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeResultOutcome {
    Stored,
    /// It is larger than what is stored.
    TooLarge,
    /// It cannot be sealed.
    NoKey,
    /// The caller may not use the tool that reads it.
    NotReadable,
    /// The store or the object storage did not take it.
    Unavailable,
}

impl LargeResultOutcome {
    pub(super) const ALL: [Self; 5] = [Self::Stored, Self::TooLarge, Self::NoKey, Self::NotReadable, Self::Unavailable];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::TooLarge => "too_large",
            Self::NoKey => "no_key",
            Self::NotReadable => "not_readable",
            Self::Unavailable => "unavailable",
        }
    }
}

impl Metrics {
    /// Something became of a result that is too large for a model.
    pub fn large_result(&self, outcome: LargeResultOutcome) {
        self.families.large_results.with_label_values(&[outcome.as_str()]).inc();
    }
}
