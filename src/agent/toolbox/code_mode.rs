//! Code mode: the model sees one tool that finds the others, and one that runs programs, which call them.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use super::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_calls::registry::{SearchIndex, Searchable};
use sekisho_core::call::{Arguments, READ_RESULT};
use sekisho_sandbox::{HITS, MAX_HITS, PYTHON, RUN_PYTHON, SEARCH_TOOLS, model_hit, model_tools};

/// A toolbox that offers two tools in place of its own. A program calls the tools that the run may use.
pub struct CodeMode {
    pub toolbox: Arc<dyn Toolbox>,
}

#[derive(Debug, Deserialize)]
struct Search {
    query: String,
    limit: Option<usize>,
}

impl CodeMode {
    /// The two tools, and the one that reads large results where there is one.
    pub async fn tools(&self) -> Vec<ToolDescription> {
        let described = model_tools().into_iter().map(|(name, description, parameters)| ToolDescription {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: Arc::new(parameters),
            is_deferred: false,
        });
        let others = self.toolbox.list().await.unwrap_or_default();
        described.chain(others.into_iter().filter(|tool| tool.name == READ_RESULT)).collect()
    }

    async fn search(&self, arguments: Arguments) -> Result<String, String> {
        let Search { query, limit } = serde_json::from_value(Value::Object(arguments))
            .map_err(|problem| format!("the arguments of `{SEARCH_TOOLS}` are invalid: {problem}; correct them"))?;
        let mut tools = self.toolbox.list().await.map_err(|error| error.to_string())?;
        tools.retain(|tool| ![PYTHON, READ_RESULT].contains(&tool.name.as_str()));
        let index = SearchIndex::build(tools.iter().map(Searchable::from), None);
        let found = index.search(&query, limit.unwrap_or(HITS).clamp(1, MAX_HITS)).into_iter();
        let hits = found.map(|(place, _)| {
            let ToolDescription { name, description, parameters, .. } = &tools[place];
            model_hit(name, description, parameters, None)
        });
        Ok(Value::from_iter(hits).to_string())
    }
}

impl Toolbox for CodeMode {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(self.tools().await) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        match call.tool.as_str() {
            RUN_PYTHON => self.toolbox.call(ToolboxCall { tool: PYTHON.to_owned(), ..call }),
            SEARCH_TOOLS => Box::pin(async move {
                let found = self.search(call.arguments).await;
                let success = found.is_ok();
                let (Ok(text) | Err(text)) = found;
                ToolAnswer { success, text, error_info: None, images: Vec::new() }
            }),
            _ => self.toolbox.call(call),
        }
    }
}

impl std::fmt::Debug for CodeMode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CodeMode").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Answers every call with the tool's name.
    struct Names;

    impl Toolbox for Names {
        fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
            let tool = |name: &str| ToolDescription {
                name: name.into(),
                description: format!("Finds a {name}."),
                parameters: Arc::new(json!({"properties": {"id": {"type": "integer"}}, "required": ["id"]})),
                is_deferred: false,
            };
            Box::pin(async move { Ok(["crm__invoice", "fs__folder", PYTHON, READ_RESULT].map(tool).into()) })
        }

        fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
            let answer = ToolAnswer { success: true, text: call.tool, error_info: None, images: Vec::new() };
            Box::pin(async { answer })
        }
    }

    async fn call(tool: &str, arguments: Value) -> (bool, String) {
        let toolbox = CodeMode { toolbox: Arc::new(Names) };
        let answer = toolbox.call(ToolboxCall::new("a", tool, arguments.as_object().cloned().unwrap())).await;
        (answer.success, answer.text)
    }

    #[tokio::test]
    async fn a_model_finds_tools_and_runs_programs_over_them() {
        let toolbox = CodeMode { toolbox: Arc::new(Names) };
        let listed: Vec<_> = toolbox.list().await.unwrap().into_iter().map(|tool| tool.name).collect();
        assert_eq!(listed, ["run_python", "search_tools", READ_RESULT]);
        let (success, found) = call(SEARCH_TOOLS, json!({"query": "customer invoice"})).await;
        assert!(success && found.contains("tools.crm__invoice(id: int)") && !found.contains("folder"), "{found}");
        let (_, found) = call(SEARCH_TOOLS, json!({"query": "finds", "limit": 99})).await;
        assert!(
            found.contains("tools.fs__folder") && ![PYTHON, READ_RESULT].iter().any(|name| found.contains(name)),
            "{found}"
        );
        assert!(!call(SEARCH_TOOLS, json!({})).await.0);
        assert_eq!(call(RUN_PYTHON, json!({"code": "1"})).await, (true, PYTHON.to_owned()));
        assert_eq!(call("crm__invoice", json!({"id": 1})).await, (true, "crm__invoice".to_owned()));
    }
}
