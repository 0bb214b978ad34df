//! The metrics of the flow of values.

use super::Metrics;

/// The judgement of a call of a tool with effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FlowEvent {
    /// Nobody need be asked about it.
    Undisputed,
    /// A person is asked, or would be.
    Asked,
    /// It is refused because of a secret, or would be.
    Forbidden,
}

sekisho_core::as_str!(FlowEvent);

impl FlowEvent {
    pub(super) const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

/// The names of the two modes in which calls are judged.
pub(super) fn mode_of(is_enforced: bool) -> &'static str {
    if is_enforced { "enforce" } else { "observe" }
}

impl Metrics {
    /// A call was judged by where its values come from.
    pub fn flow(&self, is_enforced: bool, event: FlowEvent) {
        self.families.flow_calls.with_label_values(&[mode_of(is_enforced), event.as_str()]).inc();
    }
}
