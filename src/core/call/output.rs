//! The result of a tool.

use serde_json::{Map, Value};

use crate::redaction::SentSecrets;

/// The result of a tool that ran successfully.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    pub value: Value,
    /// The form for a model. Without one it is rendered from `value`.
    pub text: Option<String>,
    /// Tokens of the text, as reported by the tool; otherwise estimated as bytes / 4.
    pub tokens: Option<u64>,
    /// Facts about the run beside the result (the final URL, the provider), the reply's `metadata`.
    pub metadata: Map<String, Value>,
    /// The form of an MCP server's result, or the form that MCP clients get instead of text; mostly `None`.
    pub mcp: Option<Box<McpResult>>,
}

/// The parts of a `CallToolResult` without another place, passed on to MCP clients unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpResult {
    /// The content blocks (text, image, audio, resource, `resource_link`), as the protocol defines them.
    pub content: Vec<Value>,
    /// The value (of [`ToolOutput`] or of the error) is the result's `structuredContent`.
    pub structured: bool,
    /// `_meta`.
    pub meta: Map<String, Value>,
    /// Members that the protocol does not have.
    pub other: Map<String, Value>,
}

impl McpResult {
    /// The text blocks, and one word for each block without text; `None` without any block.
    pub fn text(&self) -> Option<String> {
        let words = self.content.iter().map(|block| {
            let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
            match field("type") {
                "text" => field("text").to_owned(),
                "resource" => match block.pointer("/resource/text").and_then(Value::as_str) {
                    Some(text) => text.to_owned(),
                    None => format!("[resource {}]", block.pointer("/resource/uri").unwrap_or(&Value::Null)),
                },
                "resource_link" => format!("[{}: {}]", field("name"), field("uri")),
                kind => format!("[{kind} {}]", field("mimeType")),
            }
        });
        (!self.content.is_empty()).then(|| words.collect::<Vec<_>>().join("\n"))
    }

    /// The blocks that are no text: images, sounds, links and binary resources.
    pub fn media(&self) -> impl Iterator<Item = &Value> {
        self.content.iter().filter(|block| block["type"] != "text" && block.pointer("/resource/text").is_none())
    }
}

impl ToolOutput {
    /// Without the credentials that were sent to its upstream, such as the key of a query in the link to the next page.
    #[must_use]
    pub fn redacted(mut self, sent: SentSecrets) -> Self {
        let secrets = sent.of_answers();
        secrets.strike_value(&mut self.value);
        self.text = self.text.map(|text| secrets.strike(&text).into_owned());
        if let Some(McpResult { content, meta, other, .. }) = self.mcp.as_deref_mut() {
            content.iter_mut().for_each(|block| secrets.strike_value(block));
            secrets.strike_members(meta);
            secrets.strike_members(other);
        }
        self
    }
}

impl From<Value> for ToolOutput {
    fn from(value: Value) -> Self {
        Self { value, ..Self::default() }
    }
}
