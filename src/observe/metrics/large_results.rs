//! The metrics of results that are too large for a model.

use super::Metrics;

/// The outcome of a large result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LargeResultOutcome {
    Stored,
    /// It is larger than the maximum stored size.
    TooLarge,
    /// It cannot be sealed.
    NoKey,
    /// The caller may not use the tool that reads it.
    NotReadable,
    /// The store or the object storage did not take it.
    Unavailable,
}

sekisho_core::as_str!(LargeResultOutcome);

impl LargeResultOutcome {
    pub(super) const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

impl Metrics {
    /// Something became of a result that is too large for a model.
    pub fn large_result(&self, outcome: LargeResultOutcome) {
        self.families.large_results.with_label_values(&[outcome.as_str()]).inc();
    }
}
