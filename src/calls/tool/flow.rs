//! The labels of a tool, by which values of strangers are told from others, and the judgement of the arguments of a call.

#[cfg(test)]
mod prepared;

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use serde_json_path::JsonPath;

use super::{BUILTIN, FlowMetadata, PYTHON_SOURCE, Tool};
use sekisho_config::{FlowMode, SinkKindSetting, SinkSettings, TrustSetting};
use sekisho_core::call::CallKind;
use sekisho_flow::{
    ArgumentState, DestinationKind, ForbiddenSecret, Judgement, LabelsOverlay, Question, SinkKind, SinkOverlay,
    ToolFacts, ToolLabels, Trust, ValueOrigin,
};

/// Begins the source name of a tool that is an operation of a document.
const OPENAPI: &str = "openapi:";

/// The judgement of a call's arguments, and the mode in which it counts.
#[derive(Debug, Clone)]
pub struct JudgedCall {
    pub mode: FlowMode,
    pub judgement: Judgement,
    /// The effect of the call.
    pub sink: Option<SinkKind>,
    /// Whether text of strangers went into the session before.
    pub has_untrusted: bool,
}

/// A judgement as rules and receipts have it: without the values. Part of the policy input contract.
#[derive(Debug, Serialize)]
pub struct FlowNotes<'a> {
    pub mode: FlowMode,
    pub sink: Option<SinkKind>,
    pub untrusted: bool,
    pub questions: Vec<QuestionNote<'a>>,
    pub forbidden: Vec<SecretNote<'a>>,
}

/// A destination that is in question.
#[derive(Debug, Serialize)]
pub struct QuestionNote<'a> {
    /// JSON Pointer; empty for the call as a whole.
    pub argument: &'a str,
    pub kind: DestinationKind,
    pub state: ArgumentState,
    pub origin: Option<&'a ValueOrigin>,
}

/// A secret that may not leave by the call.
#[derive(Debug, Serialize)]
pub struct SecretNote<'a> {
    pub argument: &'a str,
    pub secrecy: &'a BTreeSet<String>,
    pub origin: &'a ValueOrigin,
}

impl JudgedCall {
    /// Whether a person would be asked about the call, or it would be refused.
    pub fn is_disputed(&self) -> bool {
        !self.judgement.questions.is_empty() || !self.judgement.forbidden.is_empty()
    }

    pub fn notes(&self) -> FlowNotes<'_> {
        FlowNotes {
            mode: self.mode,
            sink: self.sink,
            untrusted: self.has_untrusted,
            questions: self.judgement.questions.iter().map(QuestionNote::from).collect(),
            forbidden: self.judgement.forbidden.iter().map(SecretNote::from).collect(),
        }
    }
}

impl<'a> From<&'a Question> for QuestionNote<'a> {
    fn from(question: &'a Question) -> Self {
        let Question { pointer, value: _, destination, state, origin, sentence: _, new: _ } = question;
        Self { argument: pointer, kind: destination.kind, state: *state, origin: origin.as_ref() }
    }
}

impl<'a> From<&'a ForbiddenSecret> for SecretNote<'a> {
    fn from(secret: &'a ForbiddenSecret) -> Self {
        let ForbiddenSecret { pointer, secrecy, origin } = secret;
        Self { argument: pointer, secrecy, origin }
    }
}

impl Tool {
    /// Whether its calls have no effects outside of the gateway but by other calls: it is built in, or a program whose calls
    /// of tools are judged on their own.
    pub(crate) fn is_local(&self) -> bool {
        let source = &self.metadata.source;
        source == BUILTIN || source.starts_with(PYTHON_SOURCE)
    }

    /// Whether it runs programs or functions that call other tools.
    pub(crate) fn makes_calls(&self) -> bool {
        self.metadata.sandboxed || self.metadata.source.starts_with(PYTHON_SOURCE)
    }

    /// The method of the operation that its calls request; `None` for a tool that no document describes.
    pub(crate) fn http_method(&self) -> Option<String> {
        let reaches = self.executor.reaches().filter(|_| self.metadata.source.starts_with(OPENAPI))?;
        Some(reaches.split_once(' ')?.0.to_owned())
    }

    /// Its labels: by the configuration, and else by its description.
    pub fn labels(&self) -> &ToolLabels {
        self.labels.get_or_init(|| infer(self))
    }
}

fn infer(tool: &Tool) -> ToolLabels {
    let metadata = &tool.metadata;
    let annotations = metadata.mcp_annotations.get("annotations");
    let annotation = |name: &str| annotations.and_then(|all| all.get(name)).and_then(Value::as_bool);
    // An annotation may make a tool more guarded, whoever gives it.
    let guarded = |name: &str, is_guarded: bool| {
        annotation(name).filter(|value| metadata.flow.trusts_annotations || *value == is_guarded)
    };
    let http_method = tool.http_method();
    let effects = metadata.effects.as_ref();
    let facts = ToolFacts {
        name: tool.name(),
        description: &metadata.description,
        read_only: guarded("readOnlyHint", false).or(effects.map(|effects| effects.read_only)),
        destructive: guarded("destructiveHint", true).or(effects.and_then(|effects| effects.destructive)),
        open_world: guarded("openWorldHint", true).or(effects.map(|effects| effects.open_world)),
        http_method: http_method.as_deref(),
        tags: &metadata.labels,
        input_schema: Some(tool.complete_input().document()),
    };
    let mut overlay = overlay_of(&metadata.flow);
    let has_effects = metadata.kind == CallKind::Tool && (!tool.is_local() || tool.callers_choose_upstream());
    if overlay.sink.is_none() && !has_effects {
        overlay.sink = Some(SinkOverlay::None(false));
    }
    if overlay.trust.is_none() && metadata.kind == CallKind::Resource {
        overlay.trust = Some(Trust::Untrusted);
    }
    if tool.is_projected() {
        // Paths and names of the result are others than at its source, so that nothing says who wrote a part.
        (overlay.authored, overlay.asserted) = (parsed(&["$".to_owned()]), Vec::new());
    }
    ToolLabels::infer(&facts, Some(&overlay))
}

fn overlay_of(flow: &FlowMetadata) -> LabelsOverlay {
    LabelsOverlay {
        trust: flow.labels.trust.map(|trust| match trust {
            TrustSetting::Trusted => Trust::Trusted,
            TrustSetting::Untrusted => Trust::Untrusted,
        }),
        secrecy: flow.labels.secrecy.iter().cloned().collect(),
        authored: parsed(&flow.labels.authored),
        asserted: parsed(&flow.labels.asserted),
        sink: flow.sink.as_ref().map(sink_of),
    }
}

fn sink_of(settings: &SinkSettings) -> SinkOverlay {
    let kind = match settings.kind {
        SinkKindSetting::None => return SinkOverlay::None(false),
        SinkKindSetting::Send => SinkKind::Send,
        SinkKindSetting::Pay => SinkKind::Pay,
        SinkKindSetting::Delete => SinkKind::Delete,
        SinkKindSetting::Publish => SinkKind::Publish,
        SinkKindSetting::Fetch => SinkKind::Fetch,
        SinkKindSetting::Write => SinkKind::Write,
    };
    SinkOverlay::Kind { kind, destination: parsed(&settings.destination) }
}

/// The configuration has checked them.
fn parsed(paths: &[String]) -> Vec<JsonPath> {
    paths.iter().filter_map(|path| JsonPath::parse(path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::Metadata;
    use crate::tool::tests::tool_with;
    use sekisho_config::LabelSettings;
    use sekisho_flow::DestinationPlaces;

    fn labels(flow: FlowMetadata) -> ToolLabels {
        tool_with(Metadata { name: "post_note".into(), flow, ..Metadata::default() }, json!({}), None).labels().clone()
    }

    #[test]
    fn the_configuration_says_what_a_tool_counts_as() {
        let settings = LabelSettings {
            trust: Some(TrustSetting::Trusted),
            secrecy: vec!["payroll".to_owned()],
            ..LabelSettings::default()
        };
        let trusted = labels(FlowMetadata { labels: settings, ..FlowMetadata::default() });
        assert_eq!(trusted.returns.trust, Trust::Trusted);
        assert!(trusted.returns.secrecy.contains("payroll"));
        let sink = |kind| SinkSettings { kind, destination: vec!["$.to".to_owned()] };
        let pays = labels(FlowMetadata { sink: Some(sink(SinkKindSetting::Pay)), ..FlowMetadata::default() });
        let pays = pays.sink.unwrap();
        assert_eq!(pays.kind, SinkKind::Pay);
        assert!(matches!(pays.destinations, DestinationPlaces::Paths(paths) if paths.len() == 1));
        let none = labels(FlowMetadata { sink: Some(sink(SinkKindSetting::None)), ..FlowMetadata::default() });
        assert_eq!(none.sink, None);
    }

    /// Of a server that is not trusted, an annotation counts only where it guards.
    #[test]
    fn an_annotation_opens_only_where_its_server_is_trusted() {
        let sink = |annotations: Value, trusts_annotations: bool, source: &str| {
            let metadata = Metadata {
                name: "handle_thing".into(),
                source: source.into(),
                flow: FlowMetadata { trusts_annotations, ..FlowMetadata::default() },
                mcp_annotations: json!({"annotations": annotations}).as_object().cloned().unwrap(),
                ..Metadata::default()
            };
            tool_with(metadata, json!({}), None).labels().sink.as_ref().map(|sink| sink.kind)
        };
        let reads = || json!({"readOnlyHint": true});
        assert_eq!(sink(reads(), true, "mcp:s"), None);
        assert_eq!(sink(reads(), false, "mcp:s"), Some(SinkKind::Write));
        assert_eq!(sink(json!({"readOnlyHint": false}), false, "mcp:s"), Some(SinkKind::Write));
        assert_eq!(sink(json!({}), false, BUILTIN), None, "a built-in tool has no effect outside");
    }
}
