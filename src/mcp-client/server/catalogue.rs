//! The part of a server's lists that is offered here: named, bounded, repaired, and under the configuration's terms.

mod beside_tools;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::endpoint::Endpoint;
use super::executor::package_in_lock;
use super::listing::{Listing, name_of};
use super::task::TaskSupport;
use crate::names::{Names, app_of};
use crate::text::bounded;
use crate::transport::request_headers::MarkedArguments;
use sekisho_calls::registry::lock::Pin;
use sekisho_calls::registry::lock::injection_findings;
use sekisho_calls::tool::{Executor, ToolDefinition, Unavailable};
use sekisho_calls::tool::{FlowMetadata, Metadata, Parameters};
use sekisho_config::{ApprovalRule, McpServerSettings, PreparedTool, TrustSetting, prepared_server};
use sekisho_core::call::Upstream;
use sekisho_core::error::Detail;
use sekisho_core::tool_scope::fits;

/// Maximum bytes of a server's instructions.
const MAX_INSTRUCTIONS: usize = 8 << 10;

/// Why some of a server's tools are not on offer.
pub(crate) const TOO_MANY: &str =
    "the server has more tools than `mcp.max_tools_per_server`; narrow them with `include`";

/// Further data of a server about a tool, passed on to MCP clients.
const ANNOTATIONS: [&str; 5] = ["title", "annotations", "icons", "execution", "_meta"];

/// One state of a server's offer.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) tools: Vec<ToolDefinition>,
    /// The requests that the server answers beside its tools, whatever it lists.
    pub(crate) operations: Vec<ToolDefinition>,
    pub(crate) unavailable: Vec<Unavailable>,
    /// With their URIs as they are known here.
    pub(crate) resources: Vec<Value>,
    pub(crate) templates: Vec<Value>,
    /// The URIs of the resources that tools name as their apps; a server need not list them.
    pub(crate) apps: HashSet<String>,
    pub(crate) prompts: Vec<Value>,
    /// Name here → the server's own.
    pub(crate) prompt_names: HashMap<String, String>,
    pub(crate) instructions: Option<String>,
    /// Its texts for models beside its tools, if it has any.
    pub(crate) words: Option<Pin>,
    /// Suspected hidden instructions in all but its tools.
    pub(crate) flags: Vec<Detail>,
}

/// The terms that a server's things are offered on.
pub(crate) struct ListingPolicy<'a> {
    pub(crate) server: &'a str,
    pub(crate) settings: &'a McpServerSettings,
    pub(crate) names: &'a Names,
    pub(crate) reach: &'a Endpoint,
    /// Calls a minute where the settings say nothing (E46).
    pub(crate) rate_limit: u32,
}

impl Catalogue {
    /// `executor` makes the executor of the server's tool of a name, with the arguments that headers repeat, and
    /// whether it runs as a task.
    pub(crate) fn of(
        listing: &Listing,
        terms: &ListingPolicy<'_>,
        mut executor: impl FnMut(&str, MarkedArguments, TaskSupport) -> Arc<dyn Executor>,
    ) -> Self {
        let mut catalogue = Self::default();
        // A text that was written as JSON can be read as JSON.
        for text in &listing.tools {
            let Ok(mut tool) = serde_json::from_str::<Value>(text) else { continue };
            terms.names.adopt_app(&mut tool);
            let name = name_of(&tool);
            if !wants(terms.settings, name) {
                continue;
            }
            catalogue.apps.extend(app_of(&tool["_meta"]).map(str::to_owned));
            let marked = MarkedArguments::of(&tool["inputSchema"]).unwrap_or_default();
            match terms.definition(name, &tool, || executor(name, marked, TaskSupport::of(&tool))) {
                Ok(definition) => catalogue.tools.push(definition),
                Err(unavailable) => catalogue.unavailable.push(unavailable),
            }
        }
        if listing.tools_cut {
            let rest = Unavailable::new(&source(terms.server), format!("{}__*", terms.server), TOO_MANY);
            catalogue.unavailable.push(terms.for_callers(rest));
        }
        catalogue.unavailable.extend(listing.uncallable.iter().map(|(name, reason)| terms.unavailable(name, reason)));
        catalogue.add_beside_tools(listing, terms);
        catalogue.instructions = listing.instructions.as_deref().map(|text| cut(text, MAX_INSTRUCTIONS));
        catalogue.words = terms.words(listing);
        catalogue.flags = catalogue.words.iter().flat_map(Pin::flags).collect();
        for (list, items) in [("resources", &listing.resources), ("resourceTemplates", &listing.templates)] {
            catalogue.flags.extend(items.iter().flat_map(|item| injection_findings(list, item)));
        }
        catalogue
    }
}

impl ListingPolicy<'_> {
    fn definition(
        &self,
        own: &str,
        tool: &Value,
        executor: impl FnOnce() -> Arc<dyn Executor>,
    ) -> Result<ToolDefinition, Unavailable> {
        if own.is_empty() || own.len() > 256 {
            return Err(self.unavailable(own, "a tool's name must have 1 to 256 bytes"));
        }
        let name = self.names.qualified(own).ok_or_else(|| {
            self.unavailable(own, "its name has characters that model APIs refuse; give the server a prefix")
        })?;
        let settings = self.settings;
        let hint = |name: &str| tool.pointer(&format!("/annotations/{name}")).and_then(Value::as_bool);
        let trusted = |name: &str| settings.trusted && hint(name) == Some(true);
        let (description, description_problem) = self.description(tool);
        let annotations = ANNOTATIONS.iter().filter_map(|key| Some(((*key).to_owned(), tool.get(*key)?.clone())));
        let mut metadata = Metadata {
            name: name.to_string(),
            description,
            description_problem,
            category: settings.category.clone(),
            author: self.server.to_owned(),
            source: source(self.server),
            labels: settings.labels.0.names.clone().unwrap_or_default(),
            flow: FlowMetadata { trusts_annotations: settings.trusted, ..FlowMetadata::of_source(&settings.labels.0) },
            timeout_seconds: settings.timeout_seconds,
            rate_limit: settings.rate_limit.unwrap_or(self.rate_limit),
            cost_per_use: settings.cost_per_use,
            max_text_tokens: settings.max_text_tokens,
            max_output_bytes: settings.max_output_bytes,
            // A hint may make a tool stricter, whoever gives it.
            dangerous: hint("destructiveHint") == Some(true),
            idempotent: trusted("readOnlyHint") || trusted("idempotentHint"),
            roles: settings.roles.clone(),
            owner: settings.owner.clone(),
            mcp_annotations: annotations.collect(),
            ..Metadata::default()
        };
        if let Some(prepared) = settings.overlay.as_deref().and_then(prepared_server) {
            tighten(&mut metadata, prepared.tool(own));
        }
        Ok(ToolDefinition {
            metadata,
            parameters: Parameters::shared(repaired(tool.get("inputSchema"))),
            output_schema: tool.get("outputSchema").filter(|schema| schema.is_object()).cloned(),
            executor: executor(),
        })
    }

    /// The description for a model, which says where it was cut, and the reason.
    fn description(&self, tool: &Value) -> (String, Option<String>) {
        let whole = tool.get("description").and_then(Value::as_str).unwrap_or_default();
        let (bytes, max) = (whole.len(), self.settings.max_description_bytes);
        if bytes <= max {
            return (whole.to_owned(), None);
        }
        let shown = cut(whole, max);
        let problem = format!("it has {bytes} bytes and is cut after {} (max_description_bytes)", shown.len());
        (format!("{shown}\n[The description is cut here: {} of {bytes} bytes.]", shown.len()), Some(problem))
    }

    /// The same, for the callers who may see the server.
    pub(super) fn for_callers(&self, missing: Unavailable) -> Unavailable {
        missing.for_roles(&self.settings.roles).of_owner(&self.settings.owner)
    }

    /// A tool that is not offered, under the name that it would have if it can have one.
    fn unavailable(&self, own: &str, reason: &str) -> Unavailable {
        let without_name = || bounded(&cut(&format!("{}__{own}", self.server), 128));
        let name = self.names.qualified(own).map_or_else(without_name, |name| name.to_string());
        self.for_callers(Unavailable::new(&source(self.server), name, reason))
    }

    fn words(&self, listing: &Listing) -> Option<Pin> {
        let (instructions, prompts) = (listing.instructions.as_deref(), &listing.prompts);
        let says_nothing = instructions.is_none_or(str::is_empty) && prompts.is_empty();
        let package = listing.package.as_ref().map(package_in_lock);
        let pin = || Pin::of_words(&source(self.server), &self.reach.to_string(), instructions, prompts, package);
        (!says_nothing).then(pin)
    }
}

/// Marks a tool as its overlay says. Labels that the configuration gives the whole server stay.
fn tighten(metadata: &mut Metadata, marks: PreparedTool) {
    let PreparedTool { is_untrusted, is_dangerous, needs_approval, sink, shape } = marks;
    metadata.dangerous |= is_dangerous;
    if needs_approval {
        metadata.approval = ApprovalRule::Always;
    }
    if is_untrusted && metadata.flow.labels.trust.is_none() {
        metadata.flow.labels.trust = Some(TrustSetting::Untrusted);
    }
    metadata.flow.sink = metadata.flow.sink.take().or(sink);
    metadata.prepared = shape;
}

/// Whether a tool of this name is to be offered.
pub(crate) fn wants(settings: &McpServerSettings, name: &str) -> bool {
    let matches = |patterns: &[String]| patterns.iter().any(|pattern| fits(pattern, name));
    (settings.include.is_empty() || matches(&settings.include)) && !matches(&settings.exclude)
}

/// The value of a tool's `source`, which is the name of the server's breaker too.
pub(crate) fn source(server: &str) -> String {
    format!("mcp:{server}")
}

/// The upstream that the circuit breaker of a server guards.
pub fn upstream(server: &str) -> Upstream {
    Upstream::new(source(server))
}

/// Some servers leave out that arguments are an object, or that there are none: model APIs and clients want it said.
pub(crate) fn repaired(schema: Option<&Value>) -> Value {
    let mut schema = match schema {
        Some(Value::Object(schema)) => schema.clone(),
        _ => Map::new(),
    };
    if schema.get("type").and_then(Value::as_str) != Some("object") && !schema.contains_key("$ref") {
        schema.shift_insert(0, "type".to_owned(), json!("object"));
    }
    if schema.get("properties").is_some_and(Value::is_null) {
        schema.shift_remove("properties");
    }
    if schema.get("required").is_some_and(Value::is_null) {
        schema.shift_remove("required");
    }
    Value::Object(schema)
}

fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_calls::tool::{Attempt, Execution};
    use sekisho_core::call::Arguments;

    struct Nothing;

    impl Executor for Nothing {
        fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
            Box::pin(async { Ok(Value::Null.into()) })
        }
    }

    fn catalogue(settings: &McpServerSettings, prefix: Option<&str>, tools: Value) -> Catalogue {
        let Value::Array(tools) = tools else { panic!("tools are a list") };
        let tools = tools.iter().map(|tool| tool.to_string().into()).collect();
        let listing = Listing { tools, ..Listing::default() };
        let terms = ListingPolicy {
            server: "s",
            settings,
            names: &Names::new(prefix),
            reach: &Endpoint::Program("s".to_owned()),
            rate_limit: 7,
        };
        Catalogue::of(&listing, &terms, |_, _, _| Arc::new(Nothing))
    }

    #[test]
    fn an_overlay_makes_tools_stricter_and_labels_of_the_configuration_stay() {
        let tools = json!([{"name": "send_email"}, {"name": "read_email"}, {"name": "unknown"}]);
        let gmail = McpServerSettings { overlay: Some("gmail".into()), ..McpServerSettings::default() };
        let marks = |settings: &McpServerSettings| {
            let offered = catalogue(settings, Some("s"), tools.clone()).tools;
            offered.into_iter().map(|tool| tool.metadata).collect::<Vec<_>>()
        };
        let marked = marks(&gmail);
        let [sends, reads, unknown] = &marked[..] else { panic!("three tools") };
        assert!(sends.dangerous && sends.approval == ApprovalRule::Always && sends.flow.sink.is_some());
        assert_eq!((reads.dangerous, reads.flow.labels.trust), (false, Some(TrustSetting::Untrusted)));
        assert_eq!((unknown.dangerous, &unknown.flow.sink, unknown.flow.labels.trust), (false, &None, None));
        let labels = serde_json::from_value(json!({"trust": "trusted"})).unwrap();
        assert_eq!(marks(&McpServerSettings { labels, ..gmail })[1].flow.labels.trust, Some(TrustSetting::Trusted));
        assert!(!marks(&McpServerSettings::default())[0].dangerous, "without an overlay");
    }

    #[test]
    fn a_pattern_is_a_name_with_stars() {
        for (pattern, name, expected) in [
            ("get", "get", true),
            ("get", "get_it", false),
            ("get*", "get_it", true),
            ("*it", "get_it", true),
            ("g*t", "get_it", true),
            ("g*t*", "get_it", true),
            ("a*a", "a", false),
            ("a*b*a", "aba", true),
            ("*", "", true),
            ("*x*", "get_it", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_description_says_where_it_is_cut() {
        let settings = McpServerSettings { max_description_bytes: 5, ..McpServerSettings::default() };
        let described = |name: &str, text: &str| json!({"name": name, "inputSchema": {}, "description": text});
        let tools = json!([described("a", "Finds"), described("b", "Sucht für"), described("c", "Sieüü")]);
        let tools = catalogue(&settings, Some("s"), tools).tools;
        let found: Vec<_> = tools
            .iter()
            .map(|tool| (&*tool.metadata.description, tool.metadata.description_problem.as_deref()))
            .collect();
        let problem = "it has 10 bytes and is cut after 5 (max_description_bytes)";
        assert_eq!(found[0], ("Finds", None));
        assert_eq!(found[1], ("Sucht\n[The description is cut here: 5 of 10 bytes.]", Some(problem)));
        assert!(found[2].0.starts_with("Sieü\n[The description is cut here: 5 of 7"), "{:?}", found[2]);
    }

    #[test]
    fn a_hint_makes_a_tool_stricter_and_only_a_trusted_one_laxer() {
        let tools = json!([
            {"name": "a", "inputSchema": {}, "annotations": {"destructiveHint": true, "idempotentHint": true}},
            {"name": "b", "inputSchema": {}, "annotations": {"readOnlyHint": true}},
        ]);
        let plain = McpServerSettings::default();
        let seen = |settings: &McpServerSettings| {
            let tools = catalogue(settings, Some("s"), tools.clone()).tools;
            tools.iter().map(|tool| (tool.metadata.dangerous, tool.metadata.idempotent)).collect::<Vec<_>>()
        };
        assert_eq!(seen(&plain), [(true, false), (false, false)]);
        assert_eq!(seen(&McpServerSettings { trusted: true, ..plain }), [(true, true), (false, true)]);
    }

    #[test]
    fn a_schema_that_leaves_out_its_type_is_repaired() {
        for schema in [json!(null), json!({}), json!({"properties": null}), json!({"type": "string"}), json!([])] {
            let tools =
                catalogue(&McpServerSettings::default(), Some("s"), json!([{"name": "a", "inputSchema": schema}]));
            assert_eq!(tools.tools[0].parameters.document()["type"], "object");
        }
    }

    #[test]
    fn what_is_not_asked_for_or_has_no_name_is_not_offered() {
        let settings = McpServerSettings {
            include: vec!["get*".into()],
            exclude: vec!["*secret*".into()],
            ..McpServerSettings::default()
        };
        let names = ["get_a", "get_secret", "put", "get b"].map(|name| json!({"name": name, "inputSchema": {}}));
        let found = catalogue(&settings, None, Value::Array(names.to_vec()));
        let offered: Vec<_> = found.tools.iter().map(|tool| tool.metadata.name.as_str()).collect();
        assert_eq!(offered, ["get_a"]);
        assert_eq!(found.tools[0].metadata.rate_limit, 7);
        assert!(found.unavailable[0].reason.contains("give the server a prefix"));
        assert_eq!(found.unavailable[0].name, "s__get b");
        assert_eq!(catalogue(&settings, Some("s"), json!([{"name": "get b"}])).unavailable, []);
        assert_eq!(catalogue(&McpServerSettings::default(), Some("s"), json!([{}, 3])).unavailable.len(), 2);
    }
}
