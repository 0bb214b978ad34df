//! All rules for results, applied to an answer of a tool in each of its forms: value, text, and the content blocks for clients of MCP.

use serde_json::Value;

use super::Transforms;
use super::rule::Rule;
use sekisho_core::call::ToolOutput;
use sekisho_core::error::CallError;
use sekisho_core::transform_finding::{TransformFinding, TransformedPart};
use sekisho_guards::Choice;

impl Transforms {
    pub fn change_output(&self, output: &mut ToolOutput) -> Vec<TransformFinding> {
        let mut findings = Vec::new();
        for rule in &self.results {
            let counts = change(rule, output);
            findings.extend(rule.findings(TransformedPart::Results, &counts));
        }
        findings
    }

    /// Changes the parts of a tool's answer that an error repeats.
    pub fn change_error(&self, error: &mut CallError) -> Vec<TransformFinding> {
        let mut findings = Vec::new();
        let change_text = |text: &mut String| {
            for rule in self.results.iter().filter(|rule| rule.looks_anywhere()) {
                rule.strike_text(text);
            }
        };
        error.change_answer(|answer| findings = self.change_output(answer), change_text);
        findings
    }
}

/// Replaces what detectors find in an answer, for a rule of `tools.guards`.
#[derive(Debug)]
pub(crate) struct Striking(Rule);

impl Striking {
    pub(crate) fn new(name: &str, detectors: Choice) -> Self {
        Self(Rule::striking(name, detectors))
    }

    pub(crate) fn strike(&self, output: &mut ToolOutput) {
        change(&self.0, output);
    }

    pub(crate) fn strike_text(&self, text: &mut String) {
        self.0.strike_text(text);
    }
}

/// Applies one rule to all forms of an answer, and returns how much its paths have found in the form that has most.
fn change(rule: &Rule, output: &mut ToolOutput) -> Vec<usize> {
    let (mut in_value, mut in_texts) = (rule.no_counts(), rule.no_counts());
    let is_text = output.text.is_some() && output.value.as_str() == output.text.as_deref();
    let mut opaque = Vec::new();
    if let Some(mcp) = &mut output.mcp {
        opaque.extend(mcp.content.iter_mut().map(|block| !change_block(rule, block, &mut in_texts)));
    }
    match &output.mcp {
        // The content of such an answer is only in its blocks.
        Some(mcp) if is_text && !mcp.content.is_empty() => {
            if found(&in_texts) {
                output.text = mcp.text();
                output.value = output.text.clone().unwrap_or_default().into();
            }
        }
        _ => {
            rule.change(&mut output.value, &mut in_value);
            let was_read = output.text.as_mut().is_none_or(|text| rule.change_text(text, &mut in_texts));
            if found(&in_value) && !was_read {
                output.text = Some(rendered(&output.value));
            }
            if found(&in_value) {
                replace_opaque(output, &opaque);
            }
        }
    }
    if rule.looks_anywhere() {
        Rule::add(rule.strike_members(&mut output.metadata), &mut in_texts);
        if let Some(mcp) = &mut output.mcp {
            Rule::add(rule.strike_members(&mut mcp.meta), &mut in_texts);
            Rule::add(rule.strike_members(&mut mcp.other), &mut in_texts);
        }
    }
    if found(&in_texts) || found(&in_value) {
        // The tool has counted another text.
        output.tokens = None;
    }
    in_value.into_iter().zip(in_texts).map(|(value, texts)| value.max(texts)).collect()
}

/// Changes the text of a block, and the findings of detectors in any block, if the rule has no paths. Returns whether a
/// text that the block has could be read.
fn change_block(rule: &Rule, block: &mut Value, counts: &mut [usize]) -> bool {
    let was_read = match text_of(block) {
        Some(Value::String(text)) => rule.change_text(text, counts),
        _ => true,
    };
    if rule.looks_anywhere() {
        Rule::add(rule.strike(block), counts);
    }
    was_read
}

/// A path does not say which part of a text that is no JSON came from its selection, so that the changed value takes
/// the place of the text.
fn replace_opaque(output: &mut ToolOutput, opaque: &[bool]) {
    let Some(mcp) = &mut output.mcp else { return };
    let opaque = mcp.content.iter_mut().zip(opaque).filter(|(_, opaque)| **opaque);
    for text in opaque.filter_map(|(block, _)| text_of(block)) {
        *text = rendered(&output.value).into();
    }
}

fn text_of(block: &mut Value) -> Option<&mut Value> {
    match block.get("type").and_then(Value::as_str) {
        Some("text") => block.get_mut("text"),
        Some("resource") => block.pointer_mut("/resource/text"),
        _ => None,
    }
}

fn rendered(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn found(counts: &[usize]) -> bool {
    counts.iter().any(|count| *count > 0)
}
