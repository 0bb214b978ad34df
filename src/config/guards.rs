//! `tools.guards`: rules about what callers send, what tools answer, and what sources say about them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use sekisho_guards::{Detector, Direction, Rules};
use serde::Deserialize;
use url::Url;

use super::Secret;
use super::check::Findings;

/// Maximum rules: each looks at every call of its tools.
const MAX_RULES: usize = 100;
/// Maximum services.
const MAX_SERVICES: usize = 20;
/// Longest wait for the answer of a service, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 60_000;
/// Most bytes of a text that is sent to a service.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// Beginnings of the names of sources.
const SOURCES: [&str; 5] = ["builtin", "component:", "mcp:", "openapi:", "python:"];

/// Nothing is looked at without a rule.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GuardsConfig {
    /// A file in the form of `src/guards/rules.yaml` that takes the place of the rules of the detectors that come with the program.
    pub rules_file: Option<PathBuf>,
    /// Services that judge texts, by name.
    pub services: BTreeMap<String, GuardService>,
    pub rules: Vec<GuardRule>,
}

/// A service that says of a text whether it is to be stopped.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuardService {
    /// The form of its requests and answers.
    pub kind: GuardServiceKind,
    /// The address that texts are sent to. It may be a private one.
    pub url: Url,
    /// Sent as `Authorization: Bearer …`.
    #[serde(default)]
    pub api_key: Option<Secret>,
    /// The model, for `openai_moderation` and `llama_guard`.
    #[serde(default)]
    pub model: Option<String>,
    /// The language of texts, for `presidio_analyzer`.
    #[serde(default = "default_language")]
    pub language: String,
    /// The lowest score that counts, of 0 to 1, for `presidio_analyzer`.
    #[serde(default = "default_threshold")]
    pub threshold: f64,
    /// Maximum wait for an answer, in milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// A longer text is not sent, and counts as one about which the service did not answer.
    #[serde(default = "default_max_bytes")]
    pub max_bytes: usize,
}

/// The form of a service's requests and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
pub enum GuardServiceKind {
    /// `{"text", "direction", "tool", "tenant"}` → `{"flagged": true, "categories": ["NAME"]}`.
    Generic,
    /// `POST /v1/moderations` of OpenAI.
    OpenaiModeration,
    /// `POST /v2/guard` of Lakera.
    Lakera,
    /// `POST /analyze` of Presidio.
    PresidioAnalyzer,
    /// `POST /v1/chat/completions` of a server that has Llama Guard.
    LlamaGuard,
}

/// A search, its places, and its consequence.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuardRule {
    /// In receipts and metrics: letters, digits, `_` and `-`.
    pub name: String,
    /// What follows from a finding.
    pub on_match: OnMatch,
    /// The detectors of the gateway that look at the texts.
    #[serde(default)]
    pub detect: Vec<Detector>,
    /// A service of `services` that judges the texts.
    #[serde(default)]
    pub service: Option<String>,
    /// What follows where the service does not answer.
    #[serde(default)]
    pub on_failure: GuardFailure,
    /// Where it looks.
    #[serde(default = "default_directions")]
    pub directions: Vec<Direction>,
    /// Names of tools; a final `*` matches any rest. Empty: all.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Sources of tools, such as `mcp:github`; a final `*` matches any rest. Empty: all.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Tenants whose calls it looks at. Empty: all.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// Countries whose `personal_numbers` are found, such as `us`. Empty: all.
    #[serde(default)]
    pub countries: Vec<String>,
}

/// What follows from a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnMatch {
    /// It is recorded, and with `policy.flow` an answer counts as text of strangers.
    Label,
    /// The finding is replaced by `[redacted]`.
    Mask,
    /// The call is refused, the answer withheld, the tool not offered.
    Block,
}

/// What follows where a service does not answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuardFailure {
    /// The call is refused, or its answer withheld.
    #[default]
    Block,
    /// It goes on, and the receipt says so.
    Pass,
}

fn default_language() -> String {
    "en".to_owned()
}

fn default_threshold() -> f64 {
    0.5
}

fn default_timeout_ms() -> u64 {
    2_000
}

fn default_max_bytes() -> usize {
    64 << 10
}

fn default_directions() -> Vec<Direction> {
    vec![Direction::Answers]
}

impl GuardsConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        if self.rules.len() > MAX_RULES {
            findings.add("tools.guards.rules", format!("has more than {MAX_RULES} rules"), "join rules into one");
        }
        if self.services.len() > MAX_SERVICES {
            findings.add("tools.guards.services", format!("has more than {MAX_SERVICES} services"), "remove some");
        }
        for (name, service) in &self.services {
            service.check(&format!("tools.guards.services.{name}"), findings);
        }
        let mut names = BTreeSet::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let setting = format!("tools.guards.rules[{index}]");
            rule.check(&setting, &self.services, findings);
            // The rules of a file are read later, and compared then.
            if self.rules_file.is_none() {
                rule.check_countries(&setting, findings);
            }
            if !names.insert(&rule.name) {
                findings.add(format!("{setting}.name"), "is a duplicate", "give each rule its own name");
            }
        }
    }
}

impl GuardService {
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    fn check(&self, setting: &str, findings: &mut Findings) {
        if !matches!(self.url.scheme(), "http" | "https") || self.url.host().is_none() {
            findings.add(format!("{setting}.url"), "is no web address", "write https://HOST/PATH");
        } else if !self.url.username().is_empty() || self.url.password().is_some() {
            findings.add(format!("{setting}.url"), "has a user name or password", "write the key as `api_key`");
        }
        if self.kind == GuardServiceKind::LlamaGuard && self.model.is_none() {
            findings.add(format!("{setting}.model"), "is missing", "write the name that the server has for the model");
        }
        if !(0.0..=1.0).contains(&self.threshold) {
            findings.add(format!("{setting}.threshold"), "is not of 0 to 1", "write a score such as 0.5");
        }
        findings.above_zero(&format!("{setting}.timeout_ms"), self.timeout_ms);
        if self.timeout_ms > MAX_TIMEOUT_MS {
            findings.add(format!("{setting}.timeout_ms"), "is longer than a minute", "set fewer milliseconds");
        }
        findings.above_zero(&format!("{setting}.max_bytes"), self.max_bytes);
        if self.max_bytes > MAX_TEXT_BYTES {
            findings.add(format!("{setting}.max_bytes"), format!("is above {MAX_TEXT_BYTES}"), "set fewer bytes");
        }
    }
}

impl GuardRule {
    fn check(&self, setting: &str, services: &BTreeMap<String, GuardService>, findings: &mut Findings) {
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if self.name.is_empty() || self.name.len() > 64 || !is_name(&self.name) {
            findings.add(format!("{setting}.name"), "is no name", "use up to 64 letters, digits, `_` and `-`");
        }
        if self.detect.is_empty() && self.service.is_none() {
            findings.add(setting, "looks for nothing", "set `detect`, `service` or both");
        }
        if let Some(service) = self.service.as_ref().filter(|service| !services.contains_key(*service)) {
            let problem = format!("names {service:?}, which is no service of tools.guards.services");
            findings.add(format!("{setting}.service"), problem, "add the service, or write the name of one");
        }
        if self.directions.is_empty() {
            findings.add(format!("{setting}.directions"), "is empty", "write arguments, answers or descriptions");
        }
        self.check_action(setting, findings);
        let has_inner_star = |pattern: &String| pattern.strip_suffix('*').unwrap_or(pattern).contains('*');
        for (key, patterns) in [("tools", &self.tools), ("sources", &self.sources)] {
            if patterns.iter().any(has_inner_star) {
                findings.add(format!("{setting}.{key}"), "has a `*` that is not at the end", "write `crm__*`");
            }
        }
        if let Some(source) = self.sources.iter().find(|source| !may_be_source(source)) {
            let advice = "write `mcp:SERVER`, `openapi:COLLECTION`, `python:FILE`, `component:NAME` or `builtin`";
            findings.add(format!("{setting}.sources"), format!("has {source:?}, which is no source"), advice);
        }
    }

    /// A country without numbers, with which the rule would find none.
    fn check_countries(&self, setting: &str, findings: &mut Findings) {
        let rules = Rules::shipped();
        let known = rules.countries();
        if let Some(country) = self.countries.iter().find(|country| !known.contains(country.as_str())) {
            let names: Vec<_> = known.iter().copied().collect();
            let advice = format!("write some of {}, or remove the key for all", names.join(", "));
            findings.add(
                format!("{setting}.countries"),
                format!("has {country:?}, of which no numbers are known"),
                advice,
            );
        }
    }

    /// An action that a rule cannot take in its direction.
    fn check_action(&self, setting: &str, findings: &mut Findings) {
        let looks_at = |direction| self.directions.contains(&direction);
        if self.on_match == OnMatch::Mask {
            if self.service.is_some() {
                let problem = "masks what a service finds, which does not say where it is";
                findings.add(format!("{setting}.on_match"), problem, "set `label` or `block` for the service");
            }
            if looks_at(Direction::Arguments) || looks_at(Direction::Descriptions) {
                let advice = "write a rule of tools.transform.arguments, or set `block`";
                findings.add(format!("{setting}.on_match"), "masks only answers", advice);
            }
        }
        if looks_at(Direction::Descriptions) {
            let problem = "looks at descriptions, which are read when tools are registered";
            if self.service.is_some() {
                findings.add(format!("{setting}.service"), problem, "use `detect` for descriptions");
            }
            if !self.tenants.is_empty() {
                findings.add(format!("{setting}.tenants"), problem, "choose tools or sources for descriptions");
            }
        }
    }
}

/// Whether a source may have the name, or a name that begins as the pattern.
fn may_be_source(pattern: &str) -> bool {
    let (beginning, is_pattern) = pattern.split_once('*').map_or((pattern, false), |(beginning, _)| (beginning, true));
    SOURCES.iter().any(|kind| beginning.starts_with(*kind) || (is_pattern && kind.starts_with(beginning)))
}
