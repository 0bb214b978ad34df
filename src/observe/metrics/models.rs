//! The metrics of requests to models.

use std::time::Duration;

use parking_lot::Mutex;

use super::Metrics;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::{ModelTurns, UsedModel};

/// Maximum names of models that become labels, until the process ends.
const MAX_MODELS: usize = 100;

/// Maximum pairs of a tenant and a model that become labels.
const MAX_PAIRS: usize = 1_000;

/// The label of all others.
const OTHER: &str = "other";

/// The names that are labels.
#[derive(Debug)]
pub(super) struct ModelLabels(Mutex<Known>);

#[derive(Debug)]
struct Known {
    models: BoundedMap<Box<str>, ()>,
    /// By tenant, provider and model.
    pairs: BoundedMap<[Box<str>; 3], ()>,
}

impl Default for ModelLabels {
    fn default() -> Self {
        Self(Mutex::new(Known { models: BoundedMap::new(MAX_MODELS), pairs: BoundedMap::new(MAX_PAIRS) }))
    }
}

impl ModelLabels {
    fn model_of<'a>(&self, model: &'a UsedModel) -> &'a str {
        let mut known = self.0.lock();
        let is_label =
            known.models.contains(&*model.model) || known.models.try_insert((&*model.model).into(), ()).is_ok();
        if is_label { &model.model } else { OTHER }
    }

    fn tenant_of<'a>(&self, tenant: &'a str, provider: &str, model: &str) -> &'a str {
        let (mut known, pair) = (self.0.lock(), [tenant, provider, model].map(Box::<str>::from));
        let is_label = known.pairs.contains(&pair) || known.pairs.try_insert(pair, ()).is_ok();
        if is_label { tenant } else { OTHER }
    }
}

impl Metrics {
    /// Counts a request to a model that is over, after so long. `outcome`: `ok`, `aborted`, or the code of its error.
    pub fn record_model_request(&self, tenant: &str, model: &UsedModel, outcome: &'static str, took: Duration) {
        let (provider, model) = (&*model.provider, self.models.model_of(model));
        let tenant = self.models.tenant_of(tenant, provider, model);
        self.families.model_requests.with_label_values(&[tenant, provider, model, outcome]).inc();
        self.families.model_duration.with_label_values(&[provider, model]).observe(took.as_secs_f64());
    }

    /// Counts the first piece of an answer, after so long.
    pub fn record_first_token(&self, model: &UsedModel, took: Duration) {
        let (provider, model) = (&*model.provider, self.models.model_of(model));
        self.families.model_first_token.with_label_values(&[provider, model]).observe(took.as_secs_f64());
    }

    /// Counts the tokens of a model's turns.
    pub fn record_model_tokens(&self, tenant: &str, model: &UsedModel, used: &ModelTurns) {
        let (provider, model) = (&*model.provider, self.models.model_of(model));
        let tenant = self.models.tenant_of(tenant, provider, model);
        for (kind, tokens) in [
            ("input", used.prompt_tokens),
            ("cache_read", used.cached_tokens),
            ("cache_write", used.cache_write_tokens),
            ("output", used.completion_tokens),
            ("reasoning", used.reasoning_tokens),
        ] {
            self.families.model_tokens.with_label_values(&[tenant, provider, model, kind]).inc_by(tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> UsedModel {
        UsedModel { agent: "main".into(), provider: "openai".into(), model: name.into() }
    }

    #[test]
    fn tokens_are_counted_by_tenant_model_and_kind() {
        let metrics = Metrics::new("ns").unwrap();
        let used = ModelTurns { prompt_tokens: 9, cached_tokens: 8, completion_tokens: 5, ..ModelTurns::default() };
        metrics.record_model_tokens("acme", &model("m"), &used);
        metrics.record_model_tokens("acme", &model("m"), &used);
        metrics.record_first_token(&model("m"), Duration::from_millis(300));
        metrics.record_model_request("acme", &model("m"), "ok", Duration::from_secs(2));
        let text = metrics.render();
        for (kind, tokens) in [("input", 18), ("cache_read", 16), ("cache_write", 0), ("output", 10), ("reasoning", 0)]
        {
            let labels = format!("kind=\"{kind}\",model=\"m\",provider=\"openai\",tenant=\"acme\"");
            assert!(text.contains(&format!("ns_agent_model_tokens_total{{{labels}}} {tokens}\n")), "{kind}: {text}");
        }
        for sample in [
            "ns_agent_model_requests_total{model=\"m\",outcome=\"ok\",provider=\"openai\",tenant=\"acme\"} 1\n",
            "ns_agent_model_request_duration_seconds_sum{model=\"m\",provider=\"openai\"} 2\n",
            "ns_agent_model_first_token_seconds_sum{model=\"m\",provider=\"openai\"} 0.3\n",
        ] {
            assert!(text.contains(sample), "{sample}: {text}");
        }
    }

    #[test]
    fn models_and_tenants_that_come_and_go_make_no_labels_without_end() {
        let metrics = Metrics::new("ns").unwrap();
        let request = |tenant: &str, name: &str| {
            metrics.record_model_request(tenant, &model(name), "ok", Duration::from_secs(1));
        };
        for number in 0..2 * MAX_MODELS {
            request("acme", &format!("model{number}"));
        }
        for number in 0..2 * MAX_PAIRS {
            request(&format!("tenant{number}"), "model0");
        }
        request("acme", "model0");
        let text = metrics.render();
        let samples: Vec<_> = text.lines().filter(|line| line.starts_with("ns_agent_model_requests_total{")).collect();
        assert_eq!(samples.len(), MAX_PAIRS + 1, "{samples:?}");
        let value = |labels: &str| samples.iter().find_map(|sample| sample.split_once(labels)?.1.trim().parse().ok());
        assert_eq!(
            value("{model=\"model0\",outcome=\"ok\",provider=\"openai\",tenant=\"acme\"}"),
            Some(2),
            "known ones go on"
        );
        assert_eq!(value("{model=\"other\",outcome=\"ok\",provider=\"openai\",tenant=\"acme\"}"), Some(MAX_MODELS));
        let of_others = 2 * MAX_PAIRS - (MAX_PAIRS - MAX_MODELS - 1);
        assert_eq!(value("{model=\"model0\",outcome=\"ok\",provider=\"openai\",tenant=\"other\"}"), Some(of_others));
    }
}
