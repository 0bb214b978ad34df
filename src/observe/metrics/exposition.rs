//! The metrics as a scrape gets them: each family under two namespaces.

use prometheus::TextEncoder;
use prometheus::proto::MetricFamily;

use super::Metrics;

/// The namespace under which dashboards and alert rules find each family, whatever the configuration says.
const OWN_NAMESPACE: &str = "sekisho";

impl Metrics {
    /// The text exposition format, version 0.0.4: each family under both namespaces, with the same samples, which are read once.
    pub fn render(&self) -> String {
        let mut gathered = self.registry.gather();
        // A family without children yet (no breaker so far) is left out by the encoder: nobody would
        // see that it exists.
        let empty = self.families.without_samples(&gathered);
        let mut text = String::new();
        write_families(&gathered, &mut text);
        text.extend(empty.iter().map(|family| family.written_as(&family.name)));
        if self.namespace == OWN_NAMESPACE {
            return text;
        }
        gathered.retain_mut(|family| {
            let Some(name) = self.own_name(family.name()) else { return false };
            family.set_name(name);
            true
        });
        write_families(&gathered, &mut text);
        text.extend(empty.iter().filter_map(|family| Some(family.written_as(&self.own_name(&family.name)?))));
        text
    }

    /// A family's name under [`OWN_NAMESPACE`]; `None` for the families of the process, which have no namespace.
    fn own_name(&self, name: &str) -> Option<String> {
        let name = name.strip_prefix(&*self.namespace)?.strip_prefix('_')?;
        Some(format!("{OWN_NAMESPACE}_{name}"))
    }
}

fn write_families(families: &[MetricFamily], text: &mut String) {
    if let Err(problem) = TextEncoder::new().encode_utf8(families, text) {
        tracing::error!(%problem, "the metrics cannot be rendered");
    }
}
