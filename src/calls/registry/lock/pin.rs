//! The pinned content of one tool, and its hash.

use serde_json::{Map, Value};

use crate::registry::lock::injection_scan;
use crate::tool::ToolDefinition;
use sekisho_core::error::Detail;
use sekisho_core::json;

/// One tool as its source describes it: origin, description, schemas, and the other members for MCP clients
/// (annotations, title, icons, `_meta`); and the installed package of its program.
#[derive(Debug, Clone, PartialEq)]
pub struct Pin {
    /// All keys are sorted, so that equal pins have the same text.
    content: Map<String, Value>,
    hash: String,
}

pub(super) const ORIGIN: &str = "origin";
pub(super) const DESCRIPTION: &str = "description";
pub(super) const PARAMETERS: &str = "parameters";

impl Pin {
    /// The pin of a tool that is offered as `name`.
    pub fn of(name: &str, definition: &ToolDefinition) -> Self {
        let metadata = &definition.metadata;
        let origin = match definition.executor.reaches() {
            Some(reached) => format!("{} {reached}", metadata.source),
            None => metadata.source.clone(),
        };
        let mut content = metadata.mcp_annotations.clone();
        content.insert(ORIGIN.to_owned(), origin.into());
        content.insert(DESCRIPTION.to_owned(), metadata.description.as_str().into());
        content.insert(PARAMETERS.to_owned(), definition.parameters.described().clone());
        if let Some(schema) = &definition.output_schema {
            content.insert("output_schema".to_owned(), schema.clone());
        }
        if let Some(package) = definition.executor.package() {
            content.insert("package".to_owned(), package);
        }
        Self::new(name, content)
    }

    /// The pin of an MCP server's instructions and listed prompts, which models read too, and of the installed package of its program,
    /// which makes the prompts' messages. Its name is the name of the server's `source`.
    pub fn of_words(
        source: &str,
        reached: &str,
        instructions: Option<&str>,
        prompts: &[Value],
        package: Option<Value>,
    ) -> Self {
        let mut content = Map::new();
        content.insert(ORIGIN.to_owned(), format!("{source} {reached}").into());
        content.insert(DESCRIPTION.to_owned(), instructions.unwrap_or_default().into());
        // Sorted by name: the order in which a server lists them has no meaning.
        let named = |prompt: &Value| Some((prompt.get("name")?.as_str()?.to_owned(), prompt.clone()));
        content.insert("prompts".to_owned(), prompts.iter().filter_map(named).collect::<Map<_, _>>().into());
        if let Some(package) = package {
            content.insert("package".to_owned(), package);
        }
        Self::new(source, content)
    }

    pub(super) fn new(name: &str, mut content: Map<String, Value>) -> Self {
        content.sort_keys();
        content.values_mut().for_each(Value::sort_all_objects);
        let mut hashed = content.clone();
        hashed.insert("name".to_owned(), name.into());
        let hash = format!("sha256:{}", hex::encode(json::digest(&hashed)));
        Self { content, hash }
    }

    /// SHA-256 of the name and the pinned content as canonical JSON (RFC 8785): `sha256:…`.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The source and the target of calls: `openapi:pets GET https://pets.example/pets/{id}`.
    pub fn origin(&self) -> &str {
        self.content.get(ORIGIN).and_then(Value::as_str).unwrap_or_default()
    }

    /// `builtin`, `mcp:SERVER`, `openapi:COLLECTION`.
    pub fn source(&self) -> &str {
        let origin = self.origin();
        origin.split_once(' ').map_or(origin, |(source, _)| source)
    }

    pub fn description(&self) -> &str {
        self.content.get(DESCRIPTION).and_then(Value::as_str).unwrap_or_default()
    }

    /// Suspected prompt injections in the pinned texts.
    pub fn flags(&self) -> Vec<Detail> {
        injection_scan::scan_for_injection("", &[], &self.content)
    }

    pub fn content(&self) -> &Map<String, Value> {
        &self.content
    }

    /// The keys whose values differ, sorted.
    pub(super) fn members_unlike(&self, other: &Self) -> Vec<String> {
        let mut keys: Vec<_> = self.content.keys().chain(other.content.keys()).collect();
        keys.sort();
        keys.dedup();
        keys.into_iter().filter(|key| self.content.get(*key) != other.content.get(*key)).cloned().collect()
    }
}
