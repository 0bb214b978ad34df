//! The metrics of the gateway, as it exports them.

use std::ops::Add;

/// What `/metrics` answered.
pub(super) struct Samples(String);

impl Samples {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// The sum of a metric over all of its labels; zero where it has none yet.
    pub(super) fn sum(&self, metric: &str) -> f64 {
        self.sum_with(metric, "")
    }

    /// The same of those samples whose labels have this.
    pub(super) fn sum_with(&self, metric: &str, label: &str) -> f64 {
        let values = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(metric)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            let is_wanted = (labels.is_empty() || labels.starts_with('{')) && labels.contains(label);
            is_wanted.then(|| value.parse::<f64>().ok()).flatten()
        });
        // The sum of no floats is -0.
        values.fold(0.0, Add::add)
    }
}
